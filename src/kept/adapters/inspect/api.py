"""Drop-in for `inspect_ai.eval` that improves a text, and translation of its arguments.

An argument that would have no effect here is refused by name, never ignored.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from kept.adapters.arguments import OwnTerms, check_own, start
from kept.adapters.inspect.evaluation import Running
from kept.adapters.inspect.results import Reader, TaskRunner
from kept.adapters.inspect.tasks import Choice, Factory, Maker, Samples, TaskFile, choice_of
from kept.adapters.reflection import Reflecting, author_of, component_prompt
from kept.api import Result
from kept.core.ports import Proposer
from kept.errors import KeptError, SetupError
from kept.evaluators.runners.function import failure_of
from kept.recipes.function.compile import ProposerLike, make_proposers

CONNECTIONS = 10
"""Number of concurrent model calls that Inspect makes by default."""

RETRIES = 3
"""Retries of a call before it counts as an outage; by default Inspect retries forever."""


class Terms(OwnTerms, total=False):
    """Arguments of `optimize` besides those of `inspect_ai.eval`."""

    proposers: Sequence[ProposerLike]
    """As in `kept.optimize`; with `reflection_lm`, a model that rewrites texts is added."""
    scorer: str
    """Deciding scorer: `name`, or `name.value` if it returns several; default is the first."""
    show_targets: bool
    """True if proposers may see the correct answers of train samples; default False."""
    perfect_score: float
    """Score at which a sample needs no improvement; default 1."""


PASSED_ON = (
    *("model", "model_base_url", "model_args", "model_roles", "model_cost_config"),
    *("sandbox", "sandbox_cleanup", "sandbox_prebuilt", "approval", "review"),
    *("message_limit", "token_limit", "turn_limit", "time_limit", "working_limit", "cost_limit"),
    *("max_subprocesses", "max_sandboxes", "score_on_error", "log_level"),
)
"""Arguments passed to `inspect_ai.eval` unchanged."""

READ = ("task_args", "limit", "sample_id")
"""Arguments of `inspect_ai.eval` that are interpreted here."""

_LOGS = "a run is its own record, see `kept show`; Inspect writes no logs meanwhile"
_REPEATS = "the gate decides how often a sample is run; see `gate` and `max_metric_calls`"
_FAILURES = "a sample that fails is a failure with its culprit, and no other stops for it"
_WORKERS = "give `workers`, which is how many samples run at once"
_SET = "there is one run, and no set of them"
_TASK = "write it into the task"

REFUSED: Mapping[str, str] = {
    "tasks": "the task is the first argument",
    "seed": "it is the seed of the run; write that of a model into the config of the task",
    "solver": _TASK,
    "scanner": _LOGS,
    "sentinel": _TASK,
    "tags": _LOGS,
    "metadata": _LOGS,
    "trace": _LOGS,
    "display": "`sinks` are told of every event",
    "notification": "nobody is asked anything during a run",
    "checkpoint": "what has ended is in the journal, and is not run again",
    "acp_server": "nobody talks to a run",
    "ctl_server": "nobody talks to a run",
    "sample_shuffle": "samples are shared out by `split` and `seed`, whatever their order",
    "epochs": _REPEATS,
    "fail_on_error": _FAILURES,
    "continue_on_fail": _FAILURES,
    "retry_on_error": "what may end otherwise is tried again",
    "task_retry_attempts": "what may end otherwise is tried again",
    "debug_errors": _FAILURES,
    "max_samples": _WORKERS,
    "max_tasks": _WORKERS,
    "max_dataset_memory": "all samples are in memory",
    "run_samples": "without samples nothing is measured",
    "score": "without scores nothing is measured",
    "score_display": "`sinks` are told of every event",
    **dict.fromkeys(("eval_set_id", "eval_set_tasks", "scan_id"), _SET),
    **dict.fromkeys(("log_dir", "log_format", "log_level_transcript", "log_samples"), _LOGS),
    **dict.fromkeys(("log_realtime", "log_images", "log_model_api", "log_refusals"), _LOGS),
    **dict.fromkeys(("log_buffer", "log_shared", "log_header_only"), _LOGS),
}
"""Reason why an argument of `inspect_ai.eval` has no effect here."""


def generating() -> set[str]:
    """Names of model settings, which are passed on too."""
    return set(import_module("inspect_ai.model").GenerateConfigArgs.__annotations__) - {"seed"}


def known_terms() -> dict[str, None]:
    """All accepted arguments, in the order of error messages."""
    return dict.fromkeys((*Terms.__annotations__, *READ, *PASSED_ON, *sorted(generating())))


def check_terms(given: Mapping[str, Any]) -> None:
    """Refuse every argument without effect here and every unknown one, in one error."""
    known = known_terms()
    problems: list[str] = []
    for name in given:
        if name == "testset":
            problems.append("`testset` means nothing here: all samples are those of the task")
        elif name not in known and name in REFUSED:
            problems.append(f"`{name}` means nothing here: {REFUSED[name]}")
        elif name not in known:
            problems.append(f"`{name}` is no argument of this call")
    model = given.get("model")
    if isinstance(model, list | tuple) or (isinstance(model, str) and "," in model):
        problems.append("`model` names several: a text is improved for one")
    if problems:
        hint = f"there are {', '.join((*Terms.__annotations__, *READ, *PASSED_ON))}"
        raise SetupError("\n".join(problems), hint=f"{hint}, and the settings of Inspect's models")
    # `timeout` is a setting of Inspect's models here, not of `kept.optimize`
    check_own({name: value for name, value in given.items() if name != "timeout"})


def options_of(terms: Mapping[str, Any], workers: int) -> dict[str, Any]:
    """Options for Inspect's `eval`."""
    found = {name: terms[name] for name in (*PASSED_ON, *generating()) if name in terms}
    found.setdefault("max_retries", RETRIES)
    # Inspect would otherwise limit concurrent model calls to fewer than there are workers
    if workers > CONNECTIONS and not {"max_connections", "adaptive_connections"} & found.keys():
        found["max_connections"] = workers
    return found


def told(terms: Mapping[str, Any]) -> str:
    """Fingerprint of the plain options passed to Inspect, so that resume detects changes."""
    names = sorted({*PASSED_ON, *generating()} & terms.keys())
    plain = [(name, terms[name]) for name in names if isinstance(terms[name], str | int | float)]
    # the address of a model and the log level may change between two sessions
    return repr([row for row in plain if row[0] not in ("model_base_url", "log_level")])


def secrets_of(terms: Mapping[str, Any]) -> tuple[str, ...]:
    """Secret values among the arguments: keys and tokens in `model_args`."""
    args: object = terms.get("model_args")
    if not isinstance(args, Mapping):
        return ()
    return tuple(
        value
        for name, value in cast("Mapping[str, Any]", args).items()
        if isinstance(value, str) and any(w in name.lower() for w in ("key", "token", "secret"))
    )


def optimize(
    task: Callable[..., Any] | str | Path,
    artifact: str | Path | Mapping[str, str] | Sequence[str],
    **terms: Any,  # noqa: ANN401 # those of Inspect are named by Inspect
) -> Result:
    """Improve texts by an Inspect task, and promote only candidates that are proven better.

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
    """Read samples and scorer names of the seed's task; refuse a task whose samples vary."""
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
    """Arguments with absolute paths: the process changes its folder while a task file is loaded."""
    whole: dict[str, Any] = {**terms}
    for name in ("home", "run_dir"):
        if name in whole:
            whole[name] = Path(whole[name]).resolve()
    return cast("Terms", whole)
