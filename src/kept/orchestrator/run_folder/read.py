"""Reader of finished run folders: ours, the source's, or handmade ones of tests.

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
    """A file that holds one JSON object; None where it does not."""
    try:
        value: object = parse_json(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return None
    return value if is_dict(value) else None


def read_rows(path: Path) -> Iterator[Row]:
    """The objects of a file with one in each line; lines that are none are passed over."""
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
    """What stands at a path of keys; None where nothing does."""
    value: object = row
    for key in path:
        if not is_dict(value):
            return None
        value = value.get(key)
    return value


def part(row: Row, *path: str) -> Row:
    """The object at a path of keys; an empty one where there is none."""
    value = below(row, *path)
    return value if is_dict(value) else _NOTHING


def rows_in(value: object) -> Iterator[Row]:
    """The objects of a list."""
    if is_list(value):
        for one in value:
            if is_dict(one):
                yield one


def text_in(value: object) -> str:
    """A text, or an empty one."""
    return value if isinstance(value, str) else ""


HEIGHT = 5
"""Folders above a run's own that may be its workspace."""

FINAL = "FINAL"

COMPLETION = "run_completion.json"
"""What every run of the source has at its end."""

JOURNAL = "journal.jsonl"
"""What a run of ours has, and one of the source has not."""


def workspaces(folder: Path) -> Iterator[Path]:
    """The folder of a run and those above it, nearest first."""
    whole = folder.resolve()
    yield whole
    yield from list(whole.parents)[:HEIGHT]


class Delivered:
    """The files that a run left, by path below one folder."""

    __slots__ = ("files", "place")

    def __init__(self, place: Path, files: dict[str, Path]) -> None:
        self.place = place
        self.files = files

    def read(self) -> dict[str, bytes]:
        """What is in them."""
        return {path: file.read_bytes() for path, file in self.files.items()}


def deliverable(folder: Path, run_id: str) -> Delivered | None:
    """What a run left; None where it left nothing.

    In FINAL beside its files, in its workspace's output/FINAL, in its own part of output/, or loose
    in output/: the first that holds a file. What several runs share is nobody's.
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
    """The workspace that holds `runs/<id>`, and its root: further up, files are somebody else's.

    One of ours has all of its files in its own folder.
    """
    if (run / JOURNAL).exists() or run.parent.name != "runs":
        return []
    workspace = run.parent.parent
    return [workspace, workspace.parent] if workspace.name == "workspace" else [workspace]


def files_below(folder: Path, *, loose: bool = False) -> dict[str, Path]:
    """Plain files below a folder, by path; links are not followed.

    Of an output folder that several runs share, only what belongs to none of them is `loose`.
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
        if any((folder / one).is_symlink() for one in list(inner.parents)[:-1]):
            continue
        found[inner.as_posix()] = path
    return found


def _is_run(name: str) -> bool:
    """Whether a name is that of a run: a date, a time and eight digits of a hash."""
    parts = name.replace("T", "_").split("_")
    return len(parts) >= 3 and parts[0][:4].isdigit() and len(parts[-1]) == 8


GATES = frozenset(
    (
        *("l0", "critique", "deliverable_presence", "placeholder", "file", "deliverable"),
        *("syntax", "syntax_compile", "schema", "cross_reference", "success_criteria"),
        *("smoke", "smoke_test", "structural_integrity", "eval", "evaluation"),
    )
)
"""Gates that a completion has to pass; other refusals say nothing of a deliverable."""

REFUSED = ("reject", "rejected", "fail", "failed")

ACCEPT = 0.75
"""What a metric is held against where nobody says."""

USUAL = Caps(loops=100, workers=500, tokens=10_000_000, tool_calls=1500, wall_seconds=3600, depth=4)
"""What a run may use that does not say."""


class SeedDefect(NamedTuple):
    """One thing that a critic found wrong in a finished run."""

    summary: str
    severity: str
    evidence: str = ""


class Refusal(NamedTuple):
    """One completion that a gate refused."""

    gate: str
    reason: str
    ts: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """What refinement needs to know of a finished run."""

    folder: Path
    run_id: str
    task: str
    status: str
    loss: Loss
    defects: tuple[SeedDefect, ...]
    refusals: tuple[Refusal, ...]
    """All of them, oldest first."""
    per_metric: Mapping[str, float]
    thresholds: Mapping[str, float]
    caps: Caps
    observed_seconds: float
    manager: str
    """The model that a seed names; empty where it names none."""
    worker: str
    parent_run_id: str | None
    delivered: Delivered | None


def read_run(folder: Path) -> FinishedRun:
    """A finished run; raises `SetupError` where there is none."""
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
    """The loss of whatever is in a folder; one that is empty has a loss too."""
    return loss_of(read_signals(folder), weights)


def read_signals(folder: Path) -> Signals:
    """What the files of a run bring to its loss."""
    done = read_object(folder / COMPLETION) or {}
    rows = list(read_rows(folder / "metrics.jsonl"))
    most = first_number(below(done, "config_used", "max_rejected_completions"))
    left = first_number(below(done, "final_budget", "budget_remaining_pct"))
    if "critique" in done or "critique_score" in done:
        # a run that says it has none was not judged, whatever came before
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
    """Refusals of completions, each once: an iteration has one completion."""
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
    """Tells a refusal from its double."""

    def __init__(self) -> None:
        self._seen: set[tuple[object, str]] = set()
        self._last = ("", "")
        self._known = False

    def new(self, gate: str, iteration: object, reason: str) -> bool:
        """Whether it was not told before: there is one completion in an iteration."""
        known = iteration not in (None, -1)
        # the source writes those of L0 twice, once without saying when
        double = gate == "l0" and self._last == (gate, reason) and not (known and self._known)
        double = double or (known and (iteration, gate) in self._seen)
        self._seen.add((iteration, gate))
        self._last, self._known = (gate, reason), known
        return not double


def gate_name(value: object) -> str:
    """A gate by its plain name."""
    return text_in(value).strip().lower().removesuffix("_gate")


def _refusals(folder: Path, run_id: str) -> Iterator[Refusal]:
    # of its workspace, else beside its other files
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
        elif row.get("type") == "gate.reject":
            yield Refusal(
                text_in(row.get("gate")), text_in(row.get("reason")), str(row.get("ts", ""))
            )


def _defects(folder: Path, done: Mapping[str, Any]) -> Iterator[SeedDefect]:
    """Of the critiques of all iterations; of the whole run only where they have none."""
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
    """What was measured and what was wanted, by metric."""
    evaluations = (one / "data" / "evaluation" / f"{run_id}.json" for one in workspaces(folder))
    path = next((one for one in evaluations if one.is_file()), None)
    own = part(done, "evaluation")
    beside = (read_object(path) or {}) if path else {}
    final = _scores(below(beside, "final_result", "metric_scores"))
    found = (_scores(own.get("per_metric")), final, _latest(folder))
    observed = next(filter(None, found), _scores(beside.get("per_metric")))
    wanted = _scores(own.get("thresholds")) or _scores(beside.get("thresholds"))
    if not set(wanted) & set(observed):
        # a whole is accepted from here on, so a part below it is a gap
        bar = first_number(wanted.get("accept"), ACCEPT) or ACCEPT
        wanted = dict.fromkeys((name for name in observed if name != "efficiency"), bar)
    return observed, wanted


def _latest(folder: Path) -> dict[str, float]:
    """What the last evaluation measured, of a run that does not say at its end."""
    found: dict[str, float] = {}
    for row in read_rows(folder / "metrics.jsonl"):
        if row.get("kind") == "metric.eval":
            found = _scores(row.get("metric_scores")) or found
    return found


def _scores(value: object) -> dict[str, float]:
    """Numbers by name: of an object, or of a list of named scores."""
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
    """What a run could use: nested as real runs have it, or flat, or by its manifest."""
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
