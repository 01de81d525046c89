"""Agent cases as runner input and messages, and checks of metrics against cases.

The checks report invalid metrics, and cases that a metric cannot measure.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kept.core.case import Case
from kept.core.llm import Image, Message
from kept.core.rollout import Failure
from kept.core.text import count
from kept.evaluators.metrics.config import Metric, read_metric, turns_of
from kept.evaluators.metrics.evaluate import faults_of, lack_of
from kept.evaluators.tools.documents import Unreadable, read_document
from kept.recipes.agent_config.spec.case_files import BrokenCase
from kept.recipes.agent_config.spec.cases import (
    FileSpec,
    TestCaseSpec,
    TurnSpec,
    metrics_of,
)
from kept.recipes.agent_config.spec.metrics import AnyMetricSpec
from kept.recipes.agent_config.spec.read import ReadAgent
from kept.spec.yaml import Loc


def case_of(spec: TestCaseSpec) -> Case:
    """Convert a test case, with the part names of its file."""
    data: dict[str, Any] = {"name": spec.name}
    if spec.evaluations is not None:
        data["evaluations"] = [metric.model_dump() for metric in spec.evaluations]
    if spec.turns is None:
        return Case(spec.name or "", data | _turn(spec.exchanges[0]))
    return Case(spec.name or "", data | {"turns": [_turn(turn) for turn in spec.turns]})


def _turn(turn: TurnSpec) -> dict[str, Any]:
    said = turn.model_dump(exclude={"expected_tools", "evaluations", "files"}, exclude_none=True)
    if turn.expected_tools is not None:
        said["expected_tools"] = [
            {
                "name": one.name,
                "args": {
                    name: value.value if value.kind == "literal" else {value.kind: value.value}
                    for name, value in one.args.items()
                },
                "count": one.count,
                "match": one.match,
            }
            for one in turn.expected_tools
        ]
    if turn.evaluations is not None:
        said["evaluations"] = [metric.model_dump() for metric in turn.evaluations]
    if turn.files:
        said["files"] = [file.model_dump(exclude_none=True) for file in turn.files]
    return said


def all_cases(specs: Sequence[TestCaseSpec], broken: Sequence[BrokenCase]) -> tuple[Case, ...]:
    """All cases in file order; broken rows become cases that cannot run."""
    found = [case_of(spec) for spec in specs]
    for one in broken:
        found.insert(one.number, Case(one.name, {"name": one.name}))
    return tuple(found)


class Inputs:
    """Messages of cases with their attached files; each file is read once."""

    def __init__(
        self, folder: Path, specs: Sequence[TestCaseSpec], broken: Sequence[BrokenCase] = ()
    ) -> None:
        self._folder = folder
        self._specs: Mapping[str, TestCaseSpec] = {spec.name or "": spec for spec in specs}
        self._read: dict[str, tuple[Message, ...] | Failure] = {
            one.name: Failure("harness", "infrastructure", one.why, tried=True) for one in broken
        }

    async def of(self, case: Case) -> tuple[Message, ...] | Failure:
        """Messages of a case, in order."""
        if case.id not in self._read:
            spec = self._specs[case.id]
            if any(turn.files for turn in spec.exchanges):
                # reading a long document takes time, and must not block others
                self._read[case.id] = await asyncio.to_thread(self._messages, spec)
            else:
                self._read[case.id] = self._messages(spec)
        return self._read[case.id]

    def problems(self) -> list[tuple[str, str]]:
        """Missing files, each with the case that needs it."""
        wanted = (
            (spec.name or "", file)
            for spec in self._specs.values()
            for turn in spec.exchanges
            for file in turn.files
        )
        return [(name, problem) for name, file in wanted if (problem := self._lacks(file))]

    def _lacks(self, file: FileSpec) -> str:
        if file.url is not None:
            return f"`{file.url}` would have to be fetched; save it beside the agent, as `path`"
        there = file.path is not None and (self._folder / file.path).is_file()
        return "" if there else f"there is no file `{file.path}`"

    def _messages(self, spec: TestCaseSpec) -> tuple[Message, ...] | Failure:
        try:
            return tuple(self._message(turn) for turn in spec.exchanges)
        except Unreadable as error:
            # the file is part of the case, so it is not the candidate's fault
            return Failure("harness", "infrastructure", f"case `{spec.name}`: {error}")

    def _message(self, turn: TurnSpec) -> Message:
        parts, images = [turn.input], list[Image]()
        for file in turn.files:
            document = read_document(
                self._folder / str(file.path),
                kind=file.type,
                pages=file.pages,
                sheet=file.sheet,
                range=file.range,
            )
            images += document.images
            about = f" ({file.description})" if file.description else ""
            if document.text:
                parts.append(f"[{Path(str(file.path)).name}]{about}\n{document.text}")
            elif about:
                parts.append(f"[{Path(str(file.path)).name}]{about}")
        return Message("user", "\n\n".join(parts), tuple(images))


NAMED = 3
"""Number of cases that a warning names."""


def all_metrics(read: ReadAgent) -> Iterator[tuple[Loc, AnyMetricSpec]]:
    """Metrics of the agent and of its cases, each with its location."""
    for number, metric in enumerate(read.agent.spec.metrics):
        yield ("evaluations", "metrics", number), metric
    for case in read.cases:
        for turn in case.exchanges:
            for metric in metrics_of((), case, turn):
                yield ("test_cases",), metric


def metric_problems(read: ReadAgent) -> Iterator[tuple[Loc, str]]:
    """Problems that make a metric unusable in any run, each with its location."""
    for loc, spec in all_metrics(read):
        if spec.enabled:
            for key, problem in faults_of(_settings(spec)):
                yield (*loc, key) if len(loc) > 1 else loc, problem


def metric_warnings(read: ReadAgent) -> Iterator[str]:
    """Warnings about metrics that lack data in some cases."""
    spec = read.agent.spec
    retrieves = any(tool.gives_passages for tool in spec.tools)
    lacks: dict[tuple[str, str], dict[str, None]] = {}
    for case in read.cases:
        for metric, turn in _measured(case, spec.metrics):
            why = lack_of(metric, turn, retrieves=retrieves)
            if why is not None:
                lacks.setdefault((metric.name, why), {})[case.name or ""] = None
    for (name, why), cases in lacks.items():
        shown = ", ".join(f"`{case}`" for case in [*cases][:NAMED])
        more = f" and {len(cases) - NAMED} more" if len(cases) > NAMED else ""
        verb = "has" if len(cases) == 1 else "have"
        yield f"`{name}`: {count(len(cases), 'case')} {verb} {why}: {shown}{more}"


def _measured(
    case: TestCaseSpec, agent: tuple[AnyMetricSpec, ...]
) -> Iterator[tuple[Metric, dict[str, object]]]:
    turns = turns_of(case_of(case))
    for spec, turn in zip(case.exchanges, turns, strict=True):
        for metric in metrics_of(agent, case, spec):
            if metric.enabled:
                yield _settings(metric), dict(turn)


def _settings(spec: AnyMetricSpec) -> Metric:
    return read_metric(spec.model_dump())
