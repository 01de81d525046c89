"""An agent CLI as runner: it is given a case in a workspace, and what it leaves there is scored.

Skill, instructions and prompt are artifacts. Of a case the agent sees the fields that a task names,
as a model would. The execution is journalled as one call, so a resumed run does not repeat it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.ports import Scope
from kept.core.rollout import FREE, Failure, Job, Rollout, TraceItem
from kept.evaluators.runners.model import Form, request_for
from kept.sandbox.coding_agents.errand import Errand
from kept.sandbox.coding_agents.run import Harness

_GONE = "removed"


@dataclass(frozen=True, slots=True)
class Outfit:
    """What an agent is sent out with, besides what it is told to do."""

    skill: tuple[str, ...] = ()
    """Artifacts."""
    instructions: tuple[str, ...] = ()
    """Artifacts."""
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """By case, paths in the task's folder."""
    folder: Path = field(default_factory=Path.cwd)


class AgentRunner:
    """Sends an agent for every pair."""

    def __init__(self, harness: Harness, form: Form, outfit: Outfit) -> None:
        self._harness = harness
        self._form = form
        self._outfit = outfit

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Send it once."""
        errand = self._errand(candidate, case)
        if isinstance(errand, Failure):
            return errand
        harness = self._harness
        request = {"agent": harness.cli.name, "model": harness.config.name, "job": list(job)}
        ran = await scope.call(request, Rollout, lambda: self._news(errand))
        if isinstance(ran, Failure):
            return ran
        gone = {name for item in ran.trace for name in cast("list[str]", item.data.get(_GONE, []))}
        given = {path: data for path, data in errand.files.items() if path not in gone}
        # the scope has counted what it used
        return ran._replace(files={**given, **ran.files}, usage=FREE)

    async def _news(self, errand: Errand) -> Rollout | Failure:
        """What came of an errand, without the files that are as they were given.

        Those are at hand in the next sitting, too, and may be large.
        """
        ran = await self._harness.run(errand)
        if isinstance(ran, Failure):
            return ran
        news = {path: data for path, data in ran.files.items() if errand.files.get(path) != data}
        gone = [path for path in errand.files if path not in ran.files]
        told = (TraceItem("info", f"removed: {', '.join(gone)}", {_GONE: gone}),) if gone else ()
        return ran._replace(files=news, trace=(*ran.trace, *told))

    async def close(self) -> None:
        """Remove the scratch folder."""
        self._harness.scratch.close()

    def _errand(self, candidate: Candidate, case: Case) -> Errand | Failure:
        request = request_for(self._form, candidate, case)
        if isinstance(request, Failure):
            return request
        # without a field there is nothing but the prompt
        said = [m.text for m in request.messages if self._form.input or m.role == "system"]
        outfit, texts = self._outfit, candidate.texts
        try:
            files = {path: self._file(path, candidate) for path in outfit.files.get(case.id, ())}
        except OSError as error:
            message = f"cannot read `{error.filename}`: {error.strerror}"
            return Failure("harness", "infrastructure", message)
        return Errand(
            prompt="\n\n".join(said),
            files=files,
            instructions="\n\n".join(texts[name].strip() for name in outfit.instructions),
            skill={name: texts[name] for name in outfit.skill},
        )

    def _file(self, path: str, candidate: Candidate) -> bytes:
        if path in candidate.texts:
            return candidate.texts[path].encode("utf-8", "surrogateescape")
        return (self._outfit.folder / path).read_bytes()
