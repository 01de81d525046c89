"""The call that a user of Inspect has: a task, a model, and now a text to improve."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from kept.adapters.inspect.making import Factory, Maker, TaskFile
from kept.adapters.inspect.reading import Reader
from kept.adapters.inspect.runner import TaskRunner
from kept.adapters.inspect.running import Running
from kept.adapters.inspect.samples import Choice, Samples, choice_of
from kept.adapters.inspect.terms import Terms, check_terms, options_of, secrets_of, told
from kept.adapters.prompting import component_prompt
from kept.adapters.reflecting import Reflecting
from kept.adapters.starting import start
from kept.adapters.writers import author_of
from kept.api import Result
from kept.core.ports import Proposer
from kept.errors import KeptError, SetupError
from kept.evaluators.runners.function import failure_of
from kept.recipes.function.compile import make_proposers


def optimize(
    task: Callable[..., Any] | str | Path,
    artifact: str | Path | Mapping[str, str] | Sequence[str],
    **terms: Any,  # noqa: ANN401 # those of Inspect are named by Inspect
) -> Result:
    """Improve texts by an Inspect task, and promote only what is proven better.

    Args:
        task: a function of the texts that returns a `Task`, under `@task` or not; or a file,
            `"tasks.py@name"`.
        artifact: with a function a text, the `Path` of one, or texts by the names of parameters;
            with a file, patterns of the files that may change, below the folder of the task.
        **terms: see `Terms`; besides, what `inspect_ai.eval` takes: `model`, `model_args`,
            `task_args`, `limit`, `sample_id`, `message_limit` … and settings of the model.
    """
    _present()
    check_terms(terms)
    known = cast("Terms", terms)
    maker = _maker(task, artifact, terms.get("task_args") or {})
    proposers = [*_proposers(maker.texts, known)]
    workers = known.get("workers", 8)
    running = Running(options_of(terms, workers), workers)
    try:
        running.start()
        samples, names = running.call(lambda: _measure(maker, choice_of(terms)))
        which = known.get("scorer")
        if which is not None and names and which.partition(".")[0] not in names:
            hint = f"there are {', '.join(names)}"
            raise SetupError(f"the task has no scorer `{which}`", hint=hint)
        data = samples.data(known.get("split", "3:5:2"), known.get("seed", 0))
        targets = known.get("show_targets", False)
        reader = Reader(tuple(maker.texts), which, targets, secrets_of(terms))
        source = "\n".join([maker.source, str(terms.get("model")), str(which), told(terms)])
        seed = known.get("seed", 0)
        runner = TaskRunner(running, maker, samples, reader, seed=seed, source=source)
        defaults: Terms = {"bounds": (0.0, 1.0), **_placed(known)}
        return start(maker.texts, runner, data, proposers, defaults)
    finally:
        running.close()


def _present() -> None:
    try:
        theirs = import_module("inspect_ai")
    except ImportError as error:
        raise SetupError("Inspect is not here", hint="pip install inspect_ai") from error
    if not hasattr(theirs, "SampleSource") or not hasattr(theirs, "TaskSource"):
        hint = "pip install --upgrade inspect_ai, to 0.3.285 or later"
        raise SetupError(f"Inspect {theirs.__version__} is too old", hint=hint)


def _maker(task: object, artifact: Any, args: Mapping[str, Any]) -> Maker:  # noqa: ANN401 # checked
    if isinstance(task, str | Path):
        if isinstance(artifact, Mapping) or not isinstance(artifact, str | Path | Sequence):
            hint = 'give patterns of files below the folder of the task, as in ["prompt.md"]'
            raise SetupError("the artifact of a task file is files beside it", hint=hint)
        rows = cast("Sequence[Any]", [artifact] if isinstance(artifact, str | Path) else artifact)
        return TaskFile(str(task), [str(row) for row in rows], args)
    if not callable(task):
        hint = "give a function of the texts that returns it: a Task that is made has them already"
        raise SetupError(f"`task` is {task!r:.60}", hint=hint)
    return Factory(task, artifact, args)


def _measure(maker: Maker, choice: Choice) -> tuple[Samples, list[str]]:
    """The samples of the seed's task, and the names of its scorers."""
    first, names = _look(maker, choice)
    again, _ = _look(maker, choice)
    if not first.same(again):
        message = "the task has other samples each time that it is made"
        raise SetupError(message, hint="give its dataset a seed to shuffle by, and samples an `id`")
    return first, names


def _look(maker: Maker, choice: Choice) -> tuple[Samples, list[str]]:
    try:
        task, close = maker.make(maker.texts)
    except KeptError:
        raise
    except (Exception, SystemExit) as error:
        tame = error if isinstance(error, Exception) else RuntimeError(f"SystemExit: {error}")
        raise SetupError(f"the task cannot be made: {failure_of(tame).message}") from error
    try:
        samples = Samples.read(task, choice)
        info = import_module("inspect_ai.util").registry_info
        names = [str(info(scorer).name).rpartition("/")[2] for scorer in task.scorer]
    finally:
        close()
    return samples, names


def _proposers(texts: Mapping[str, str], terms: Terms) -> Iterator[Proposer]:
    if "proposers" in terms:
        yield from make_proposers(texts, terms["proposers"])
    lm = terms.get("reflection_lm")
    words = component_prompt(terms, asked=lm is not None)
    if lm is not None:
        perfect = terms.get("perfect_score", 1.0)
        size = terms.get("reflection_minibatch_size", 3)
        author = replace(author_of(lm, terms), told=words)
        yield Reflecting(author, tuple(texts), size, perfect=perfect)
    elif "proposers" not in terms:
        hint = "give reflection_lm=…, a model that writes texts anew, or proposers=[…]"
        raise SetupError("nobody writes new texts", hint=hint)


def _placed(terms: Terms) -> Terms:
    """With whole paths: while a task file is loaded, the process is in its folder."""
    whole: dict[str, Any] = {**terms}
    for name in ("home", "run_dir"):
        if name in whole:
            whole[name] = Path(whole[name]).resolve()
    return cast("Terms", whole)
