"""SpreadsheetBench: instructions about workbooks, solved by programs of a student.

A program runs on each workbook of a case, in the sandbox; the student may try until it keeps one.
LibreOffice recalculates the formulas, then the relevant cells are compared with those of the
expected workbook.
"""

import importlib.util
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kept.core.case import Case
from kept.core.ports import Scope, Tool
from kept.core.rollout import NO_FILES, Failure, Job, Rollout
from kept.core.text import are, count, one_line
from kept.evaluators.environments.base import (
    About,
    Defect,
    Episode,
    Graded,
    Item,
    Posed,
    Turn,
    TurnOptions,
    initial,
)
from kept.evaluators.environments.datasets import Fields, as_items, values
from kept.evaluators.environments.spreadsheetbench.cells import differences
from kept.evaluators.environments.spreadsheetbench.tasks import Books
from kept.evaluators.environments.spreadsheetbench.workbench import (
    INPUT,
    MOST_WRONG,
    OUTPUT,
    SOLUTION,
    WORKSPACE,
    Looked,
    Mode,
    Prompt,
    Work,
    code_in,
    failed_text,
    question,
    system_of,
    wrong_text,
)
from kept.evaluators.environments.standalone import AskedStudent, CaseResult, Json
from kept.evaluators.tools.libreoffice import DEBIAN, find_office
from kept.evaluators.tools.python_code import Ran, data_bench
from kept.evaluators.tools.shell import EpisodeWorkspace, ShellSettings, ShellTool
from kept.sandbox.capabilities import abilities
from kept.sandbox.workspace import Scratch
from kept.settings import install_command

CODE = "code.py"
"""Path of the program in the files of a rollout."""

FAILED = "failed"
"""Key of the reason, in place of cells, if a program made no workbook."""


@dataclass(slots=True, kw_only=True)
class Coding(Episode):
    """Episode of one case: programs run until one is kept."""

    posed: Posed
    case: Case
    books: Books
    work: Work
    scope: Scope
    mode: Mode
    turns: int
    shows_gold: bool
    """True only in training: the student then learns which cells are wrong."""
    workspace: EpisodeWorkspace | None = None
    """Workspace of the mode `react`; None in the others."""
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
        """Next message to the student; None if its program is kept."""
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
    """Path of the workbook made by a program, in the files of a rollout; `n` from 0."""
    return f"{n + 1}_pred.xlsx"


def last_programs(programs: Mapping[str, Callable[[], Ran | None]]) -> dict[int, Ran]:
    """Runs of the last try of an episode, by workbook from 0."""
    last = max((_try_of(scope) for scope in programs), default=0)
    found = {scope: read() for scope, read in programs.items() if _try_of(scope) == last}
    return {int(scope.rpartition("/")[2]) - 1: ran for scope, ran in found.items() if ran}


def _try_of(scope: str) -> int:
    return int(scope.partition("/")[0].removeprefix("try-"))


def cells_file(n: int) -> str:
    """Path of the cells of a workbook, in the files of a rollout; `n` from 0."""
    return f"{n + 1}_cells.json"


def wrong_cells(gold: Looked, looked: Looked) -> list[str]:
    """Cells of a workbook that differ from the expected ones, with their values.

    Empty if the workbook is right. The expected values are not in it.
    """
    if FAILED in looked:
        return [f"the program failed: {looked[FAILED].strip().splitlines()[-1][:300]}"]
    if "unreadable" in looked:
        return [f"the workbook cannot be read: {looked['unreadable']}"]
    found = list(differences(gold, looked, gold["areas"]))
    told = [f"{one.where}: your output = {one.got}" for one in found[:MOST_WRONG]]
    more = len(found) - MOST_WRONG
    return [*told, f"and {more} more cells"] if more > 0 else told


MOST_REFERENCE = 60
"""Maximum number of expected cells shown to an analyst."""

_TRAIN = "feedback"


@dataclass(frozen=True)
class SpreadsheetBench(TurnOptions):
    """SpreadsheetBench environment: one case is one instruction, with up to three workbooks."""

    mode: Mode = "multi"
    """`single` is one reply, `multi` tells of errors and asks again, `react` has a shell."""
    max_turns: int = 30
    """Replies of a student in the modes `multi` and `react`."""
    exec_timeout: float = 600.0
    """Seconds for one execution of an agent CLI."""
    code_timeout: float = 120.0
    """Seconds for a program on one workbook."""
    recalculate: bool = True
    """Recalculate formulas with LibreOffice before cells are compared."""
    prompt: Prompt = "official"
    """The system prompt; `custom` adds rules."""
    data_root: Path = Path("data/spreadsheetbench_verified_400")
    """Base folder of each `spreadsheet_path`, and folder of dataset.json."""
    _books: Books = field(init=False, repr=False, compare=False)
    _work: Work = field(init=False, repr=False, compare=False)

    name = "spreadsheetbench"
    data = (
        "SpreadsheetBench (huggingface.co/datasets/KAKA22/SpreadsheetBench): "
        "dataset.json, and spreadsheet/ with a folder of "
        ".xlsx files for each task, below `env.data_root`; rows of dataset.json, or their ids, in "
        "train/, val/ and test/ below `env.split_dir`; or with `split_mode: ratio` the "
        "dataset.json itself as `env.data_path`"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("exec_timeout", "code_timeout"):
            if getattr(self, name) <= 0:
                raise ValueError(f"`{name}` is not above 0")
        object.__setattr__(self, "_books", Books(self.data_root))
        work = Work.of(Scratch(), self.data_root, self.code_timeout, recalculate=self.recalculate)
        object.__setattr__(self, "_work", work)

    def needs(self) -> str:
        """Name what is missing: openpyxl, the sandbox or LibreOffice."""
        lacks: list[str] = []
        if importlib.util.find_spec("openpyxl") is None:
            lacks.append(f"openpyxl is not installed; {install_command('office')}")
        if not (able := abilities()).walls:
            lacks.append(f"there is no sandbox for programs of a model: {able.why_not}")
        if self.recalculate and find_office() is None:
            lacks.append(
                f"LibreOffice is not installed; install the Debian package {DEBIAN}, or set "
                "`env.recalculate: false`, which grades formulas as empty cells"
            )
        return "; ".join(lacks)

    def turns(self) -> int:
        """Return `max_turns` in the mode `multi`, 1 in the others."""
        return self.max_turns if self.mode == "multi" else 1

    def replies(self) -> int:
        """Maximum number of replies with shell calls, for the mode `react`."""
        return self.max_turns

    def exec_seconds(self) -> float:
        """Return `exec_timeout`."""
        return self.exec_timeout

    def skill(self) -> Mapping[str, str]:
        """Return the initial skill, a few lines."""
        return initial("spreadsheetbench")

    def read(self, path: Path) -> Iterable[Item]:
        """Tasks with their workbooks."""
        fields = Fields()
        return as_items(fields, self._books.items(path, fields))

    def defects(self, items: Sequence[Item]) -> Iterable[Defect]:
        """Cases that are solved without any work, in part or whole."""
        return self._books.defects(items)

    def pose(self, case: Case) -> Posed:
        """The instruction, and how the workbook begins."""
        files = {INPUT: self._books.content(case, 0), "README.txt": WORKSPACE.encode()}
        return Posed(
            question(values(case), self.mode), system_of(self.prompt, self.mode), files=files
        )

    def begin(self, case: Case, job: Job, scope: Scope) -> Episode:
        """Return the episode, with a workspace in the mode `react`."""
        return Coding(
            posed=self.pose(case),
            case=case,
            books=self._books,
            work=self._work,
            scope=scope,
            mode=self.mode,
            turns=self.turns(),
            shows_gold=job.purpose == _TRAIN,
            workspace=self._workspace() if self.mode == "react" else None,
        )

    def grade(self, case: Case, rollout: Rollout) -> Graded | Failure:
        """Grade by the share of right workbooks; `hard` is 1 if all are right."""
        whole = len(values(case)["workbooks"])
        wrong = {n + 1: cells for n in range(whole) if (cells := self._wrong(case, n, rollout))}
        right = whole - len(wrong)
        soft = right / whole
        shown = {n: one_line(", ".join(_first(cells)), 400) for n, cells in wrong.items()}
        why = "; ".join(f"workbook {n}: {cells}" for n, cells in shown.items())
        told = f"{right} of {count(whole, 'workbook')} {are(whole)} right"
        return Graded(float(not wrong), soft, why, told, {"workbooks_right": soft})

    def row(self, result: CaseResult) -> Json:
        """One line of `results.jsonl` of `eval_prompt_official` and `eval_prompt_custom`."""
        soft = result.metrics.get("soft", 0.0)
        solved = result.metrics.get("hard", 0.0) >= 1
        whole = len(values(result.case)["workbooks"])
        why = result.failure.message if result.failure else result.why
        return {
            "id": result.case.id,
            "ok": solved,
            "hard": int(solved),
            "soft": soft,
            "n_cases": whole,
            "n_pass": round(soft * whole),
            "fail_reason": "" if solved else why,
            "error": "",
        }

    def prediction(self, result: CaseResult) -> Mapping[str, bytes]:
        """The program, the reply, and each workbook that the last program made."""
        found = {"raw.txt": result.reply.encode("utf-8", "replace")}
        if self.mode != "react" and result.reply.strip():
            left = result.left.get(SOLUTION)
            code = code_in(result.reply).encode("utf-8", "replace") if left is None else left
            found[CODE] = code
        for n, ran in last_programs(result.programs).items():
            if ran.ok:
                found[made_file(n)] = ran.files[OUTPUT]
        return found

    def summary(self, rows: Sequence[Json], asked: AskedStudent) -> Json:
        """The sums of `summary.json`."""
        n = len(rows) or 1
        means = {key: sum(row[key] for row in rows) / n for key in ("hard", "soft")}
        return {"prompt": self.prompt, "model": asked.model, "n": len(rows), **means}

    def about(self, case: Case) -> About:
        """The instruction, its kind, the expected cells of the first workbook, and its preview."""
        data = values(case)
        task = f"{data['instruction']}\n\nExpected answer position: {data['answer_position']}"
        cells = [
            f"{sheet}!{name} = {value}"
            for sheet, found in self._books.gold(case, 0)["cells"].items()
            for name, value in found.items()
        ]
        reference = "\n".join(cells[:MOST_REFERENCE])
        kind = data["instruction_type"] or "spreadsheetbench"
        return About(task, kind, reference, data["preview"])

    async def close(self) -> None:
        """Remove the scratch folder."""
        self._work.scratch.close()

    def _wrong(self, case: Case, n: int, rollout: Rollout) -> list[str]:
        found = rollout.files.get(cells_file(n))
        if found is None:
            return ["no program was run on it"]
        return wrong_cells(self._books.gold(case, n), json.loads(found))

    def _workspace(self) -> EpisodeWorkspace:
        hidden = data_bench(self._work.scratch, (self.data_root,)).hidden
        settings = ShellSettings(hidden=hidden, limits=self._work.bench().limits)
        return EpisodeWorkspace(self._work.scratch, settings)


def _first(cells: Iterable[str]) -> Iterator[str]:
    for n, cell in enumerate(cells):
        if n == 3:
            yield "…"
            return
        yield cell
