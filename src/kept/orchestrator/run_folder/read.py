"""Reader of finished run folders: of Kept, of the source, or handmade ones of tests.

Broken or missing JSON counts as absent and is never an error. Files may lie beside the run folder
or further up in its workspace. The deliverable is searched in four places, and a folder without
files does not count.

Both formats of budgets, events and critiques are supported. Only refusals of a completion count
as rejections, each once. The source writes some twice, and others that are none.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from kept.core.parsing import parse_json
from kept.core.schedules.refine import Caps
from kept.core.untyped import is_dict, is_list
from kept.errors import SetupError
from kept.orchestrator.loss import Loss, Signals, Weights, first_number, loss_of, mean_of

Row = Mapping[str, Any]

_NOTHING: Row = {}


def read_object(path: Path) -> Row | None:
    """Read a file that holds one JSON object; None if it does not."""
    try:
        value: object = parse_json(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return None
    return value if is_dict(value) else None


def read_rows(path: Path) -> Iterator[Row]:
    """Yield the JSON objects of a file, one per line; skips lines that are none."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        try:
            value: object = parse_json(line)
        except ValueError:
            continue
        if is_dict(value):
            yield value


def below(row: Row, *path: str) -> Any:  # noqa: ANN401 # whatever JSON holds
    """Return the value at a path of keys; None if there is none."""
    value: object = row
    for key in path:
        if not is_dict(value):
            return None
        value = value.get(key)
    return value


def part(row: Row, *path: str) -> Row:
    """Return the object at a path of keys; an empty one if there is none."""
    value = below(row, *path)
    return value if is_dict(value) else _NOTHING


def rows_in(value: object) -> Iterator[Row]:
    """Yield the objects of a list."""
    if is_list(value):
        for one in value:
            if is_dict(one):
                yield one


def text_in(value: object) -> str:
    """Return a value if it is a text, else an empty text."""
    return value if isinstance(value, str) else ""


HEIGHT = 5
"""Number of folders above a run's own that may be its workspace."""

FINAL = "FINAL"

COMPLETION = "run_completion.json"
"""File that every finished run of the source has."""

JOURNAL = "journal.jsonl"
"""File that only runs of Kept have, not those of the source."""


def workspaces(folder: Path) -> Iterator[Path]:
    """Yield the folder of a run and those above it, nearest first."""
    whole = folder.resolve()
    yield whole
    yield from list(whole.parents)[:HEIGHT]


class Delivered:
    """Files that a run delivered, by path below one folder."""

    __slots__ = ("files", "place")

    def __init__(self, place: Path, files: dict[str, Path]) -> None:
        self.place = place
        self.files = files

    def read(self) -> dict[str, bytes]:
        """Read the content of all files."""
        return {path: file.read_bytes() for path, file in self.files.items()}


def deliverable(folder: Path, run_id: str) -> Delivered | None:
    """Find the deliverable of a run; None if it left no file.

    The first of these that holds a file: FINAL in the run's folder, output/FINAL of its workspace,
    its own folder in output/, and loose files in output/. Files shared by several runs are
    ignored.
    """
    for place, loose in _places(folder, run_id):
        files = files_below(place, loose=loose)
        if files:
            return Delivered(place, files)
    return None


def _places(folder: Path, run_id: str) -> Iterator[tuple[Path, bool]]:
    yield folder / FINAL, False
    whole = folder.resolve()
    above = _holders(whole)
    # output/FINAL and loose files belong to this run only if the workspace has no other run
    alone = not above
    if above:
        runs = [one for one in whole.parent.iterdir() if one.is_dir()]
        alone = sum(not one.name.startswith(".") for one in runs) == 1
    outputs = [place / "output" for place in (whole, *above)]
    for output in outputs:
        if alone or output.parent == whole:
            yield output / FINAL, False
        yield output / run_id, False
    for output in outputs:
        if alone or output.parent == whole:
            yield output, True


def _holders(run: Path) -> list[Path]:
    """Return the workspace that holds `runs/<id>`, and its root; files further up are unrelated.

    A run of Kept has all files in its own folder.
    """
    if (run / JOURNAL).exists() or run.parent.name != "runs":
        return []
    workspace = run.parent.parent
    return [workspace, workspace.parent] if workspace.name == "workspace" else [workspace]


def files_below(folder: Path, *, loose: bool = False) -> dict[str, Path]:
    """Return regular files below a folder, by path; links are not followed.

    With `loose`, files in FINAL and in folders of runs are left out.
    """
    found: dict[str, Path] = {}
    if not folder.is_dir() or folder.is_symlink():
        return found
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder)
        if path.is_symlink() or not path.is_file():
            continue
        if loose and len(inner.parts) > 1 and (inner.parts[0] == FINAL or _is_run(inner.parts[0])):
            continue
        # a linked folder on the way; the last of `parents` is "." itself
        if any((folder / one).is_symlink() for one in list(inner.parents)[:-1]):
            continue
        found[inner.as_posix()] = path
    return found


def _is_run(name: str) -> bool:
    """True if a name looks like a run id: a date, a time and eight digits of a hash."""
    # `2026-01-31_12-00-00_0123abcd`, or with `T` between date and time
    parts = name.replace("T", "_").split("_")
    return len(parts) >= 3 and parts[0][:4].isdigit() and len(parts[-1]) == 8


GATES = frozenset(
    (
        *("l0", "critique", "deliverable_presence", "placeholder", "file", "deliverable"),
        *("syntax", "syntax_compile", "schema", "cross_reference", "success_criteria"),
        *("smoke", "smoke_test", "structural_integrity", "eval", "evaluation"),
    )
)
"""Checks of a completion; refusals by other gates say nothing about a deliverable."""

REFUSED = ("reject", "rejected", "fail", "failed")

ACCEPT = 0.75
"""Default threshold of a metric."""

USUAL = Caps(loops=100, workers=500, tokens=10_000_000, tool_calls=1500, wall_seconds=3600, depth=4)
"""Default limits of a run."""


class SeedDefect(NamedTuple):
    """One problem that a critic found in a finished run."""

    summary: str
    severity: str
    evidence: str = ""


class Refusal(NamedTuple):
    """One completion that a check refused."""

    gate: str
    reason: str
    ts: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """Facts of a finished run that refinement needs."""

    folder: Path
    run_id: str
    task: str
    status: str
    loss: Loss
    defects: tuple[SeedDefect, ...]
    refusals: tuple[Refusal, ...]
    """All refusals of completions, oldest first."""
    per_metric: Mapping[str, float]
    thresholds: Mapping[str, float]
    caps: Caps
    observed_seconds: float
    manager: str
    """Model of the manager; empty if the run names none."""
    worker: str
    parent_run_id: str | None
    delivered: Delivered | None


def read_run(folder: Path) -> FinishedRun:
    """Read a finished run; raises `SetupError` if there is none."""
    done = read_object(folder / COMPLETION)
    if done is None:
        there = (folder / COMPLETION).exists()
        what = "cannot be read as JSON" if there else "is missing"
        raise SetupError(
            f"{folder / COMPLETION} {what}",
            hint="name the folder of a finished run: `runs/<id>` of a workspace",
        )
    manifest = read_object(folder / "run_manifest.json") or {}
    run_id = text_in(done.get("run_id")) or text_in(manifest.get("run_id")) or folder.name
    per_metric, thresholds = _measures(folder, run_id, done)
    final = part(done, "final_budget")
    # nested in real runs, else flat under one of several names
    elapsed = ("wall_time_elapsed_s", "elapsed_s", "observed_wall_time", "wall_time_s")
    seconds = first_number(below(final, "wall_time", "elapsed_s"), *map(final.get, elapsed))
    models = [part(manifest, "models"), part(done, "models"), part(done, "config_used")]
    return FinishedRun(
        folder=folder,
        run_id=run_id,
        task=text_in(done.get("task")) or text_in(manifest.get("task")),
        status=text_in(done.get("status")),
        loss=loss_of(read_signals(folder)),
        defects=tuple(_defects(folder, done)),
        refusals=tuple(_refusals(folder, run_id)),
        per_metric=per_metric,
        thresholds=thresholds,
        caps=_caps(final, part(manifest, "budget")),
        observed_seconds=seconds or 0.0,
        manager=_model(models, "manager", "model", "manager_model"),
        worker=_model(models, "worker", "worker_model"),
        parent_run_id=text_in(done.get("parent_run_id")) or None,
        delivered=deliverable(folder, run_id),
    )


def read_loss(folder: Path, weights: Weights | None = None) -> Loss:
    """Compute the loss of a run folder; an empty folder has a loss too."""
    return loss_of(read_signals(folder), weights)


def read_signals(folder: Path) -> Signals:
    """Read the signals of a run's loss from its files."""
    done = read_object(folder / COMPLETION) or {}
    rows = list(read_rows(folder / "metrics.jsonl"))
    most = first_number(below(done, "config_used", "max_rejected_completions"))
    left = first_number(below(done, "final_budget", "budget_remaining_pct"))
    if "critique" in done or "critique_score" in done:
        # an explicit null means that the run has no critique, whatever the metrics say
        critique = first_number(below(done, "critique", "score"), done.get("critique_score"))
    else:
        critique = mean_of(rows, "metric.critique")
    return Signals(
        eval_score=first_number(
            below(done, "eval", "score"),
            below(done, "evaluation", "score"),
            mean_of(rows, "metric.eval"),
        ),
        critique_score=critique,
        rejections=len(list(_counted(rows))),
        max_rejections=int(most) if most and most > 0 else 2,
        budget_remaining=None if left is None else min(100.0, max(0.0, left)) / 100,
        status=text_in(done.get("status")),
    )


def _counted(rows: list[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield refusals of completions, each once: an iteration has one completion."""
    once = Once()
    for row in rows:
        verdict = text_in(row.get("verdict")).lower()
        gate = gate_name(row.get("gate"))
        if row.get("kind") != "metric.gate" or verdict not in REFUSED:
            continue
        if gate and gate not in GATES:
            continue
        if once.new(gate, row.get("iteration"), text_in(row.get("reason"))):
            yield row


class Once:
    """Filter for refusals that were written twice."""

    def __init__(self) -> None:
        self._seen: set[tuple[object, str]] = set()
        self._last = ("", "")
        self._known = False

    def new(self, gate: str, iteration: object, reason: str) -> bool:
        """True for a refusal not seen before: there is one completion per iteration."""
        known = iteration not in (None, -1)
        # the source writes refusals by L0 twice, once without the iteration
        double = gate == "l0" and self._last == (gate, reason) and not (known and self._known)
        double = double or (known and (iteration, gate) in self._seen)
        self._seen.add((iteration, gate))
        self._last, self._known = (gate, reason), known
        return not double


def gate_name(value: object) -> str:
    """Return the plain name of a gate."""
    return text_in(value).strip().lower().removesuffix("_gate")


def _refusals(folder: Path, run_id: str) -> Iterator[Refusal]:
    # prefer the log in the workspace to the one in the run's folder
    events = (place / "logs" / run_id / "events.jsonl" for place in workspaces(folder))
    path = next((one for one in (*events, folder / "events.jsonl") if one.is_file()), None)
    once = Once()
    for row in read_rows(path) if path else ():
        fields = part(row, "fields")
        if row.get("category") == "gate" and fields.get("triggered") is True:
            gate = gate_name(fields.get("gate"))
            at = fields.get("iteration", row.get("iteration"))
            reason = text_in(fields.get("reason"))
            if gate in GATES and once.new(gate, at, reason):
                yield Refusal(gate, reason, str(row.get("ts", "")))
        # the simpler format of handmade runs
        elif row.get("type") == "gate.reject":
            yield Refusal(
                text_in(row.get("gate")), text_in(row.get("reason")), str(row.get("ts", ""))
            )


def _defects(folder: Path, done: Mapping[str, Any]) -> Iterator[SeedDefect]:
    """Yield the defects of all iterations; if there are none, those of the whole run."""
    found = False
    for path in sorted(folder.glob("iterations/*/critique.json")):
        for critique in rows_in((read_object(path) or {}).get("critiques")):
            for row in rows_in(critique.get("defects")):
                found = True
                yield _defect(row)
    if not found:
        yield from map(_defect, rows_in(below(done, "critique", "defects")))


def _defect(row: Mapping[str, Any]) -> SeedDefect:
    summary = text_in(row.get("description")) or text_in(row.get("summary"))
    evidence = text_in(row.get("location")) or text_in(row.get("evidence"))
    return SeedDefect(summary, text_in(row.get("severity")) or "medium", evidence)


def _measures(
    folder: Path, run_id: str, done: Mapping[str, Any]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return measured values and thresholds, by metric."""
    evaluations = (one / "data" / "evaluation" / f"{run_id}.json" for one in workspaces(folder))
    path = next((one for one in evaluations if one.is_file()), None)
    own = part(done, "evaluation")
    beside = (read_object(path) or {}) if path else {}
    final = _scores(below(beside, "final_result", "metric_scores"))
    found = (_scores(own.get("per_metric")), final, _latest(folder))
    observed = next(filter(None, found), _scores(beside.get("per_metric")))
    wanted = _scores(own.get("thresholds")) or _scores(beside.get("thresholds"))
    if not set(wanted) & set(observed):
        # without thresholds of its own, each metric must reach the bar of the total score
        bar = first_number(wanted.get("accept"), ACCEPT) or ACCEPT
        wanted = dict.fromkeys((name for name in observed if name != "efficiency"), bar)
    return observed, wanted


def _latest(folder: Path) -> dict[str, float]:
    """Return the scores of the last evaluation in `metrics.jsonl`."""
    found: dict[str, float] = {}
    for row in read_rows(folder / "metrics.jsonl"):
        if row.get("kind") == "metric.eval":
            found = _scores(row.get("metric_scores")) or found
    return found


def _scores(value: object) -> dict[str, float]:
    """Return numbers by name, from an object or a list of named scores."""
    if isinstance(value, list):
        named = {text_in(row.get("name")): row.get("score") for row in rows_in(cast("Any", value))}
        value = {name: score for name, score in named.items() if name}
    if not is_dict(value):
        return {}
    read = {name: first_number(one, below(value, name, "score")) for name, one in value.items()}
    return {name: one for name, one in read.items() if one is not None}


_AXES = {
    "loops": (("loops", "max"), "max_loops"),
    "workers": (("workers", "max"), "max_total_workers"),
    "tokens": (("tokens", "max"), "max_total_tokens"),
    "tool_calls": (("tool_calls", "max"), "max_tool_calls"),
    "wall_seconds": (("wall_time", "max_s"), "max_wall_time"),
    "depth": (("depth", "max"), "max_depth"),
}


def _caps(final: Mapping[str, Any], manifest: Mapping[str, Any]) -> Caps:
    """Return the limits of a run: nested as in real runs, else flat, else of the manifest."""
    found = {
        axis: first_number(
            below(final, *nested), final.get(flat), manifest.get(flat), getattr(USUAL, axis)
        )
        for axis, (nested, flat) in _AXES.items()
    }
    return Caps(**{axis: int(value or 0) for axis, value in found.items()})


def _model(places: list[Mapping[str, Any]], *names: str) -> str:
    found = (text_in(place.get(name)) for place in places for name in names)
    return next(filter(None, found), "")
