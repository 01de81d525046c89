"""A case being run: programs of a student, tried on workbooks, until one stays."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kept.core.case import Case
from kept.core.ports import Scope, Tool
from kept.core.rollout import NO_FILES, Failure
from kept.evaluators.environments.contract import Episode, Posed, Turn
from kept.evaluators.environments.fields import values
from kept.evaluators.environments.spreadsheetbench.cells import differences
from kept.evaluators.environments.spreadsheetbench.prompts import (
    INPUT,
    MOST_WRONG,
    OUTPUT,
    SOLUTION,
    Mode,
    code_in,
    failed_text,
    wrong_text,
)
from kept.evaluators.environments.spreadsheetbench.tasks import Books
from kept.evaluators.environments.spreadsheetbench.working import Looked, Work
from kept.evaluators.tools.python_code import Ran
from kept.evaluators.tools.shell import EpisodeWorkspace, ShellTool

CODE = "code.py"
"""Where in the files of a rollout its program is."""

FAILED = "failed"
"""Says, in place of cells, why a program made no workbook."""


@dataclass(slots=True, kw_only=True)
class Coding(Episode):
    """One rollout of one case."""

    posed: Posed
    case: Case
    books: Books
    work: Work
    scope: Scope
    mode: Mode
    turns: int
    shows_gold: bool
    """True in training alone: wrong cells are named then."""
    workspace: EpisodeWorkspace | None = None
    """In the mode `react`."""
    _asked: int = 0
    _inputs: list[bytes] = field(default_factory=list[bytes])
    _tool: ShellTool | None = None

    async def pose(self) -> Posed | Failure:
        """The question; in the mode `react`, with the first workbook in a workspace."""
        count = len(values(self.case)["workbooks"])
        self._inputs = [self.books.content(self.case, n) for n in range(count)]
        if self.workspace is not None:
            await self.workspace.open({INPUT: self._inputs[0]})
            self._tool = ShellTool(self.workspace)
        return self.posed

    def tools(self) -> Sequence[Tool]:
        """A shell, in the mode `react`."""
        return (self._tool,) if self._tool is not None else ()

    async def answer(self, said: str, files: Mapping[str, bytes] = NO_FILES) -> Turn | Failure:
        """Run a program on the first workbook, and on all of them if that is the last try."""
        self._asked += 1
        scope = self.scope.branch(f"try-{self._asked}")
        code = self._code(said, files)
        first = await self.work.run(scope.branch("1"), code, self._inputs[0])
        if isinstance(first, Failure):
            return first
        # an agent CLI is asked once: what it left is all there will be
        last = self.mode != "multi" or files is not NO_FILES or self._asked >= self.turns
        if not last:
            again = await self._again(scope, first)
            if again is not None:
                return Turn(again, over=False) if isinstance(again, str) else again
        return await self._ended(scope, code, first)

    async def close(self) -> None:
        """Remove the workspace."""
        if self.workspace is not None:
            self.workspace.close()

    def _code(self, said: str, files: Mapping[str, bytes]) -> str:
        found = files.get(SOLUTION)
        if found is None and self.workspace is not None:
            path = self.workspace.folder / SOLUTION
            found = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        return code_in(said) if found is None else found.decode("utf-8", "replace")

    async def _again(self, scope: Scope, first: Ran) -> str | Failure | None:
        """What a student is asked next; None where its program stays."""
        if not first.ok:
            return failed_text(first.text)
        if not self.shows_gold:
            return None
        looked = await self._looked(scope.branch("shown"), {0: first})
        if isinstance(looked, Failure):
            return looked
        wrong = wrong_cells(self.books.gold(self.case, 0), looked[0])
        return wrong_text([f"{cell} (WRONG)" for cell in wrong]) if wrong else None

    async def _ended(self, scope: Scope, code: str, first: Ran) -> Turn | Failure:
        runs = {0: first}
        for n, book in enumerate(self._inputs[1:], 1):
            ran = await self.work.run(scope.branch(f"{n + 1}"), code, book)
            if isinstance(ran, Failure):
                return ran
            runs[n] = ran
        looked = await self._looked(scope.branch("cells"), runs)
        if isinstance(looked, Failure):
            return looked
        files = {CODE: code.encode("utf-8", "replace")}
        for n, ran in runs.items():
            if ran.ok:
                files[made_file(n)] = ran.files[OUTPUT]
            files[cells_file(n)] = json.dumps(looked[n], sort_keys=True).encode()
        return Turn(output=code, files=files, metrics={"tries": float(self._asked)})

    async def _looked(
        self, scope: Scope, runs: Mapping[int, Ran]
    ) -> Mapping[int, Looked] | Failure:
        made = {f"{n + 1}.xlsx": ran.files[OUTPUT] for n, ran in runs.items() if ran.ok}
        areas = {f"{n + 1}.xlsx": self.books.gold(self.case, n)["areas"] for n in runs}
        found = await self.work.cells(scope, made, areas)
        if isinstance(found, Failure):
            return found
        return {
            n: found[f"{n + 1}.xlsx"] if ran.ok else {FAILED: ran.text[-1000:]}
            for n, ran in runs.items()
        }


def made_file(n: int) -> str:
    """Where in the files of a rollout the workbook is that a program made, counted from 0."""
    return f"{n + 1}_pred.xlsx"


def last_programs(programs: Mapping[str, Callable[[], Ran | None]]) -> dict[int, Ran]:
    """The last runs of an episode, by workbook counted from 0; those of earlier tries are gone."""
    last = max((_try_of(scope) for scope in programs), default=0)
    found = {scope: read() for scope, read in programs.items() if _try_of(scope) == last}
    return {int(scope.rpartition("/")[2]) - 1: ran for scope, ran in found.items() if ran}


def _try_of(scope: str) -> int:
    return int(scope.partition("/")[0].removeprefix("try-"))


def cells_file(n: int) -> str:
    """Where in the files of a rollout the cells of a workbook are, counted from 0."""
    return f"{n + 1}_cells.json"


def wrong_cells(gold: Looked, looked: Looked) -> list[str]:
    """Cells of a workbook that are not as expected, with what they hold; empty where it is right.

    Nothing in it says what is expected.
    """
    if FAILED in looked:
        return [f"the program failed: {looked[FAILED].strip().splitlines()[-1][:300]}"]
    if "unreadable" in looked:
        return [f"the workbook cannot be read: {looked['unreadable']}"]
    found = list(differences(gold, looked, gold["areas"]))
    told = [f"{one.where}: your output = {one.got}" for one in found[:MOST_WRONG]]
    more = len(found) - MOST_WRONG
    return [*told, f"and {more} more cells"] if more > 0 else told
