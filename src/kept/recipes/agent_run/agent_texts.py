"""The prompts of an agent run: Kept's own, versions of a registry, files of a folder.

A file stands for both. Of the six that can be improved, the registry says which version is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from kept.models.prompts import ARTIFACTS, RUN
from kept.orchestrator.prompt_registry import OF_EXPERIMENT, PromptRegistry, registry_path
from kept.orchestrator.texts import ROLES, own_artifacts, own_prompts
from kept.spec.load import said
from kept.spec.source import Source
from kept.spec.yaml import Loc
from kept.store.home import Home


@dataclass(frozen=True, slots=True)
class RunTexts:
    """What models are told in a run."""

    prompts: Mapping[str, str]
    """Of manager, worker and critic."""
    artifacts: Mapping[str, str]
    """The six that can be improved."""
    files: frozenset[str] = frozenset()
    """Of all these, those that are a user's own file."""


def registry_of(home: Home, target: str = "") -> PromptRegistry:
    """The registry of a project, or of the experiment of a target."""
    if target:
        from kept.orchestrator.folders import EXPERIMENTS, target_of

        experiment, _ = target_of(home.path / EXPERIMENTS, target)
        return experiment_registry(home, experiment.folder)
    return PromptRegistry(registry_path(home), own_artifacts())


def experiment_registry(home: Home, folder: Path) -> PromptRegistry:
    """The registry of an experiment: as long as it has none, what the project uses."""
    return PromptRegistry(folder / OF_EXPERIMENT, own_artifacts(), registry_of(home).texts)


def run_texts(
    source: Source,
    home: Home | None = None,
    began: Mapping[str, str] | None = None,
    loc: Loc = ("prompts",),
    target: str = "",
) -> RunTexts:
    """All of them; what is wrong with those of a folder is reported.

    A run that goes on has the versions that it `began` with, whatever is active by now. One with a
    `target`, EXP:TASK, has those of the experiment.
    """
    if began is None:
        began = registry_of(home or Home.find(source.folder), target).texts()
    prompts, artifacts = own_prompts(), {name: began[name] for name in ARTIFACTS}
    files: set[str] = set()
    given = said(source, loc)
    if not isinstance(given, str) or not given:
        return RunTexts(prompts, artifacts)
    folder = source.folder / given
    if not folder.is_dir():
        hint = f"`kept prompts copy {given} {' '.join(RUN[:3])}` makes one"
        source.report(loc, f"there is no folder `{given}`", hint)
        return RunTexts(prompts, artifacts)
    # at use: it takes longer to import than most runs need for all else, and few have a folder
    from kept.recipes.task.prompts import read_prompt

    _check_names(source, folder, loc)
    for name in RUN:
        path = folder / f"{name}.md"
        text = read_prompt(source, loc, f"{given}/{name}.md", name) if path.is_file() else None
        if text is not None:
            (artifacts if name in ARTIFACTS else prompts)[name] = text
            files.add(name)
    assert set(prompts) == set(ROLES), "no other prompt is asked for"
    return RunTexts(prompts, artifacts, frozenset(files))


def _check_names(source: Source, folder: Path, loc: Loc) -> None:
    for path in sorted(folder.glob("*.md")):
        if path.stem not in RUN:
            near = get_close_matches(path.stem, RUN, n=1)
            hint = f"did you mean `{near[0]}.md`?" if near else f"there are {', '.join(RUN)}"
            source.report(loc, f"`{path.name}` is no prompt of an agent run", hint)
