"""`kept check`: what a run would do, without doing any of it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ui.cli.tasks import kept, write_task

# An audit hook sees every file that is opened and every process that is started.
WATCHED = """
import os, sys
seen = []
def hook(event, args):
    if event in ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec", "os.system"):
        seen.append(f"{event} {args[:1]}")
    if event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR):
        if args[0] not in (1, 2):  # stdout and stderr, which are open already
            seen.append(f"writes {args[0]}")
    if event in ("os.mkdir", "os.rename", "os.remove", "os.symlink", "os.truncate", "os.chmod"):
        seen.append(f"{event} {args[0]}")
    if event in ("socket.connect", "socket.bind"):
        seen.append(event)
from kept.ui.cli.main import cli
from kept.sandbox.capabilities import abilities
abilities()  # what this machine can do is found out by trying, once a process
sys.dont_write_bytecode = True
sys.addaudithook(hook)
try:
    cli.main(["check", *sys.argv[1:]])
except SystemExit as end:
    code = end.code
sys.stdout.flush()
print(code, seen, file=sys.stderr)
"""


def test_check_says_in_json_that_all_is_well(here: Path):
    write_task(here)
    told = kept("check", "task.yaml", "--json").json
    assert told["ok"] is True
    assert told["proposers"] == ["variants"]


@pytest.mark.parametrize("command", ["check", "optimize"])
def test_problems_are_one_json_document_too(command: str, here: Path):
    spec = write_task(here)
    spec.write_text(spec.read_text().replace("maximize", "upwards").replace("width", "widht"))
    called = kept(command, "task.yaml", "--json", "--set", "workers=0")
    assert called.code == 2
    assert called.json == {
        "format": 1,
        "ok": False,
        "problems": [
            {
                "file": "task.yaml",
                "line": 4,
                "flag": None,
                "path": "objective.direction",
                "problem": "the text `upwards`, where `maximize` or `minimize` was expected",
                "hint": None,
            },
            {
                "file": "task.yaml",
                "line": 7,
                "flag": None,
                "path": "widht",
                "problem": "unknown key",
                "hint": "did you mean `width`?",
            },
            {
                "file": None,
                "line": None,
                "flag": "--set workers=0",
                "path": "workers",
                "problem": "the number 0, where 1 or more was expected",
                "hint": None,
            },
        ],
    }
    assert called.stderr.count("error: ") == 3
    assert not (here / ".kept").exists()


def test_a_spec_that_is_not_there_is_a_problem_in_json(here: Path):
    called = kept("check", "absent.yaml", "--json")
    assert called.code == 2
    (told,) = called.json["problems"]
    assert (told["problem"], told["file"]) == ("there is no absent.yaml", None)
    assert told["hint"]


def test_check_tells_the_plan(here: Path):
    spec = write_task(here)
    spec.write_text(
        spec.read_text()
        + "constraints: [{metric: words, op: '<=', value: 90}]\n"
        + "policy: {tie_breakers: [{lower: words}]}\n"
        + "mutation: {max_changed_lines: 40}\nworkers: 2\n"
    )
    called = kept("check", "task.yaml")
    assert called.code == 0
    assert called.stderr == ""
    for line in (
        "spec       task.yaml (artifact), in order",
        "artifacts  1 file, 5 bytes",
        "           prompt.md, 5 bytes",
        "change     at most 40 changed lines a candidate",
        "cases      none: one run of the whole command decides",
        "proposers  variants",
        "           variants: 4 texts, alternatives/1-worse.md, alternatives/2-better.md, "
        "alternatives/3-crash.md, alternatives/4-best.md",
        "metric     score, maximize",
        "gate       strict: keeps a gain above 0 over 1 rollout a side",
        "           not `race`: there are no cases",
        "           unless one of these is broken: words <= 90",
        "           ties are broken by lower words",
        "budget     max_iterations 20",
        "at once    width 1, workers 2",
    ):
        assert line in called.stdout.splitlines()
    assert "`sh run.sh`" in called.stdout
    # four texts and the seed, though the budget has room for twenty
    assert "at most    5 rollouts, " in called.stdout
    assert "$0.00" in called.stdout


NEVER = "how much depends on what it is shown and answers"
RUNNER = "runner={model: openai/gpt-4o-mini, prompt: prompt.md, input: q}"
JUDGE = "scorer={type: judge, judges: [openai/gpt-4o-mini], criteria: [{name: c, means: good}]}"
EDIT = "proposers=[{kind: edit, model: openai/gpt-4.1}]"
FREE = "runner.model={provider: ollama, model: m}"


@pytest.mark.parametrize(
    ("settings", "usd", "lines"),
    [
        (
            (RUNNER,),
            "money without limit",
            (
                "the runner pays `openai/gpt-4o-mini` by the call: up to $0.00986 with the seed, "
                "for the longest reply it may give; 50 such calls would be $0.49",
                "`budget.max_usd` sets a limit",
            ),
        ),
        (
            (RUNNER, "budget={max_usd: 0.2}"),
            "$0.20",
            (
                "the runner pays `openai/gpt-4o-mini` by the call: up to $0.00986 with the seed, "
                "for the longest reply it may give; the limit pays for 20 such calls, "
                "and more short ones",
            ),
        ),
        (
            (RUNNER, "budget={max_usd: 3, max_rollouts: 7}"),
            "$3.00",
            (
                "the runner pays `openai/gpt-4o-mini` by the call: up to $0.00986 with the seed, "
                "for the longest reply it may give; 7 such calls would be $0.07",
            ),
        ),
        (
            (RUNNER, EDIT, "budget={max_usd: 3}"),
            "$3.00",
            (
                "the runner pays `openai/gpt-4o-mini` by the call: up to $0.00986 with the seed, "
                "for the longest reply it may give; the limit pays for 304 such calls "
                "if no other is paid from it, and more short ones",
                f"the proposers pay `openai/gpt-4.1` by the call: {NEVER}",
            ),
        ),
        (
            (RUNNER, "budget={max_rollouts: 7, usd_per_rollout: 0.01}"),
            "$0.21",
            ("$0.01 a rollout at most, by `budget.usd_per_rollout`",),
        ),
        ((RUNNER, FREE), "$0.00", ()),
        (
            (RUNNER, "runner.model=openai/nobody", "budget={max_minutes: 1}"),
            "money without limit",
            ("the runner pays `openai/nobody` by the call: its price is not known",),
        ),
        (
            (JUDGE, EDIT),
            "money without limit",
            (
                f"the scorer pays `openai/gpt-4o-mini` by the call: {NEVER}",
                f"the proposers pay `openai/gpt-4.1` by the call: {NEVER}",
                "`budget.max_usd` sets a limit, beside `budget.usd_per_rollout`",
            ),
        ),
        (
            (JUDGE, EDIT, "budget={max_usd: 3, usd_per_rollout: 0.1}"),
            "$3.00",
            (
                "$0.1 a rollout at most, by `budget.usd_per_rollout`",
                f"the proposers pay `openai/gpt-4.1` by the call: {NEVER}",
            ),
        ),
        (
            ("sandbox.network=on",),
            "$0.00",
            ("what commands pay for themselves, over the network, is not known",),
        ),
    ],
)
def test_check_tells_who_is_paid_and_what_is_not_known_of_it(
    here: Path,
    settings: tuple[str, ...],
    usd: str,
    lines: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    write_task(here)
    (here / "cases.jsonl").write_text("".join(f'{{"q": "{n}"}}\n' for n in range(10)))
    given = ("cases={file: cases.jsonl, split: '0:10:0'}", "gate=strict", "width=1", *settings)
    called = kept("check", "task.yaml", *(flag for one in given for flag in ("--set", one)))
    assert called.code == 0, called.stderr
    told = called.stdout.splitlines()
    at = next(n for n, line in enumerate(told) if line.startswith("at most"))
    assert told[at].endswith(f", {usd}")
    assert [line.strip() for line in told[at + 1 :]] == [*lines]


@pytest.mark.parametrize(
    ("settings", "limited"),
    [
        ((EDIT,), True),
        ((RUNNER, EDIT), True),
        (("proposers=[{kind: edit, model: openai/nobody}]",), False),
        (
            (
                RUNNER,
                "runner.model={provider: openai_compatible, model: m, base_url: 'http://x', "
                "price: {input: 1, output: 1}}",
            ),
            False,
        ),
    ],
)
def test_what_check_says_sets_a_limit_of_money_does(
    here: Path, settings: tuple[str, ...], limited: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    write_task(here)
    (here / "cases.jsonl").write_text("".join(f'{{"q": "{n}"}}\n' for n in range(10)))
    given = ("cases={file: cases.jsonl, split: '0:10:0'}", "gate=strict", *settings)
    flags = [flag for one in given for flag in ("--set", one)]
    said = kept("check", "task.yaml", *flags).stdout.splitlines()[-1]
    assert ("sets a limit" in said) == limited, said
    keys = re.findall("`(budget[^`]+)`", said) or ["budget.max_usd", "budget.usd_per_rollout"]
    limits = [flag for key in keys for flag in ("--set", f"{key}=1")]
    called = kept("check", "task.yaml", *flags, *limits)
    assert (called.code == 0) == limited, called.stderr


def test_check_as_json_is_one_document(here: Path):
    write_task(here)
    told = kept("check", "task.yaml", "--json", "--set", "budget={max_rollouts: 3}").json
    assert told["artifacts"] == [{"path": "prompt.md", "bytes": 5, "editable": True}]
    assert told["at_most"]["rollouts"] == 3
    assert told["at_most"]["usd"] == 0
    assert told["runner"]["command"] == "sh run.sh"
    assert told["gate"] == {
        "name": "strict",
        "not_race": "there are no cases",
        "rollouts_per_candidate": 1,
        "gain_above": 0,
    }
    assert told["cases"] is None


def test_the_most_it_can_take_is_what_the_budget_and_the_timeouts_allow(here: Path):
    write_task(here)
    (here / "cases.jsonl").write_text("".join(f"{n}\n" for n in range(10)))
    settings = (
        "cases={file: cases.jsonl, split: '0:10:0'}",
        "runner.timeout_seconds=20",
        "scorer.timeout_seconds=10",
        "gate=strict",
        "workers=5",
        "width=2",
    )
    flags = [flag for setting in settings for flag in ("--set", setting)]
    most = kept("check", "task.yaml", "--json", *flags).json["at_most"]
    # 4 texts, each judged twice at worst, and the seed; three tries of 30 s each, five at once
    assert most["rollouts"] == (4 * 2 + 1) * 10
    assert most["seconds"] == most["rollouts"] * 3 / 5 * 30
    few = kept("check", "task.yaml", "--json", *flags, "--set", "budget={max_minutes: 2}").json
    assert few["at_most"] == {"rollouts": 90, "seconds": 150, "usd": 0}


def test_check_warns_of_cases_that_stand_in_two_splits(here: Path):
    write_task(here)
    row = '{{"id": {}, "q": "where is my parcel, it was sent a week ago"}}\n'
    (here / "cases.jsonl").write_text("".join(row.format(n) for n in range(4)))
    called = kept("check", "task.yaml", "--set", "cases.file=cases.jsonl")
    assert called.code == 0
    assert called.stderr.count("cases are the same across splits: ") == 1


def test_check_tells_every_problem_and_exits_with_2(here: Path):
    spec = write_task(here)
    spec.write_text(spec.read_text().replace("maximize", "upwards").replace("width", "widht"))
    called = kept("check", "task.yaml")
    assert called.code == 2
    assert called.stdout == ""
    assert len(called.stderr.splitlines()) == 2


@pytest.mark.slow
def test_check_starts_no_process_and_writes_no_file(here: Path):
    spec = write_task(here)
    spec.write_text(spec.read_text() + "logging: {results_file: r.jsonl, candidate_dir: c}\n")
    before = {path: path.stat().st_mtime_ns for path in here.rglob("*")}
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, "task.yaml", "--json"],
        cwd=here,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "0 []\n"
    assert json.loads(done.stdout)["artifacts"]
    assert {path: path.stat().st_mtime_ns for path in here.rglob("*")} == before


def test_check_tells_what_commands_may_reach_and_warns_of_a_variable_that_is_not_set(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MY_API_KEY", "a-secret-of-mine")
    monkeypatch.delenv("NOT_THERE", raising=False)
    settings = (
        "sandbox={network: on, env: [MY_API_KEY, NOT_THERE]}",
        "runner.retry_exit=75",
        "runner.env={GIVEN: another-secret}",
    )
    write_task(here)
    flags = [flag for setting in settings for flag in ("--set", setting)]
    called, as_json = (
        kept("check", "task.yaml", *flags),
        kept("check", "task.yaml", "--json", *flags),
    )
    assert "; exit 75 is an outage, and tried again" in called.stdout
    assert "; with network; variables passed on: MY_API_KEY NOT_THERE; " in called.stdout
    assert "variables given to the runner: GIVEN" in called.stdout
    assert called.stderr == "warning: `sandbox.env` names `NOT_THERE`, which is not set here\n"
    told = as_json.json
    assert (told["sandbox"]["network"], told["sandbox"]["env"]) == (
        "on",
        ["MY_API_KEY", "NOT_THERE"],
    )
    assert (told["runner"]["retry_exit"], told["runner"]["env"]) == (75, ["GIVEN"])
    assert "secret" not in called.stdout + as_json.stdout


def test_the_settings_of_a_race_are_told_without_brackets(here: Path):
    write_task(here)
    (here / "cases.jsonl").write_text("".join(f"{n}\n" for n in range(40)))
    called = kept(
        "check", "task.yaml", "--set", "cases={file: cases.jsonl}", "--set", "gate=race",
        "--set", "objective.bounds=[0, 1]", "--set", "race={final: {most: 0}}",
    )  # fmt: skip
    assert called.code == 0, called.stderr
    lines = called.stdout.splitlines()
    (screen,) = (line for line in lines if line.startswith("           screen: "))
    assert "steps 8 at 0.1 then 16 at 0.12" in screen
    gate = lines[lines.index(screen) - 1]
    assert "promote_passes 2 then 4 then 8 then 16" in gate
    assert not set(gate + screen) & set("{}[]()'")
    assert any(line.startswith("           simplify: margin 0.05, alpha 0.05") for line in lines)
    assert "simpler and loses 0.05 of the scale at most" in called.stdout


def test_a_task_says_how_much_a_simplification_may_lose(here: Path):
    write_task(here)
    (here / "cases.jsonl").write_text("".join(f"{n}\n" for n in range(40)))
    given = ["--set", "cases={file: cases.jsonl}", "--set", "objective.bounds=[0, 1]"]
    race = "race={simplify: {margin: 0.02}, preset: careful, final: {most: 0}}"
    called = kept("check", "task.yaml", *given, "--set", race)
    assert called.code == 0, called.stderr
    assert "simplify: margin 0.02, alpha 0.02" in called.stdout
    assert "simpler and loses 0.02 of the scale at most" in called.stdout
    short = kept("check", "task.yaml", *given, "--set", "race=careful")
    assert "simplify: margin 0.05, alpha 0.02" in short.stdout


def test_check_says_that_texts_of_a_task_meet_in_a_final(here: Path):
    write_task(here)
    (here / "cases.jsonl").write_text("".join(f"{n}\n" for n in range(40)))
    given = ["--set", "cases={file: cases.jsonl}", "--set", "objective.bounds=[0, 1]"]
    called = kept("check", "task.yaml", *given)
    assert called.code == 0, called.stderr
    assert "holds a final among 4 alternatives on 32 cases, train cases too" in called.stdout
    assert "final: most 16, passes 1 then 2 then 4 then 8, behind 0.1, among 4" in called.stdout


def test_check_warns_of_a_single_deciding_case(here: Path):
    write_task(here)
    (here / "cases.jsonl").write_text("1\n2\n")
    called = kept("check", "task.yaml", "--set", "cases={file: cases.jsonl}")
    assert called.code == 0
    assert "warning: one case of 2 decides, `" in called.stderr


def test_every_figure_of_a_race_can_be_set_by_the_name_that_check_shows(here: Path):
    write_task(here)
    (here / "cases.jsonl").write_text("".join(f"{n}\n" for n in range(40)))
    given = ["--set", "cases={file: cases.jsonl}", "--set", "objective.bounds=[0, 1]"]
    shown = json.loads(kept("check", "task.yaml", *given, "--json").stdout)["rule"]["numbers"]
    # how many steps are open and what they meet follows from the plan
    del shown["name"], shown["simplify"]["at_once"], shown["simplify"]["bars"]
    assert shown["final"].pop("among") == 4, "a final is held among the texts of the task"
    other = {**shown, "most": 31, "promote_passes": [3, 7], "pool_goal": 2.5}
    other["screen"] = {**shown["screen"], "steps": [[9, 0.3]], "cases": 11}
    other["simplify"] = {**shown["simplify"], "hope": 0.3}
    other["final"] = {"most": 3, "passes": [2, 5], "behind": 0.2}
    called = kept("check", "task.yaml", *given, "--set", f"race={json.dumps(other)}", "--json")
    assert called.code == 0, called.stderr
    told = json.loads(called.stdout)["rule"]["numbers"]
    assert told["final"].pop("among") == 0, "4 texts are more than 3"
    assert {name: told[name] for name in other if name != "simplify"} == {
        name: value for name, value in other.items() if name != "simplify"
    }
    assert {name: told["simplify"][name] for name in other["simplify"]} == other["simplify"]


def test_a_folder_that_no_run_can_be_written_to_is_warned_of(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_task(here)
    monkeypatch.setenv("KEPT_HOME", str(here / "prompt.md" / "home"))
    told = kept("check", "task.yaml")
    assert told.code == 0
    where = f"warning: a run would be written to {here / 'prompt.md' / 'home'}, and "
    assert f"{where}{here / 'prompt.md'} is no folder\n" in told.stderr
    assert "is no folder" in kept("check", "task.yaml", "--json").json["warnings"][-1]
    disk = tmp_path / "disk"
    disk.mkdir()
    disk.chmod(0o555)
    if os.access(disk, os.W_OK):  # root may, but for a disk that is read-only
        mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(disk)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("no folder can be made read-only here")
    try:
        monkeypatch.setenv("KEPT_HOME", str(disk))
        said = kept("check", "task.yaml").stderr
    finally:
        subprocess.run(["umount", str(disk)], capture_output=True, check=False)
    assert f"warning: a run would be written to {disk}, which cannot be written to: " in said


def test_the_longest_time_is_told_by_the_second_where_nobody_would_wait_for_it(here: Path):
    write_task(here)

    def time(*settings: str) -> str:
        both = ("workers=2", *settings)
        words = [word for one in both for word in ("--set", one)]
        (line,) = (
            line
            for line in kept("check", "task.yaml", *words).stdout.splitlines()
            if line.startswith("at most")
        )
        return line.partition("513 rollouts, ")[2].partition(", $")[0]

    second = ("runner.timeout_seconds=1", "scorer.timeout_seconds=1")
    assert time(*second) == "25 m 40 s if all take their time"
    minutes = ("runner.timeout_seconds=600", "scorer.timeout_seconds=600")
    told = "4 m 17 s for each second that a rollout takes (20 m 00 s at the longest)"
    assert time(*minutes) == told
    assert time(*minutes, "budget.max_minutes=90") == "1 h 50 m if all take their time"


@pytest.mark.parametrize("name", ["bandit", "in_turn"])
def test_it_says_how_several_proposers_have_their_turns(tmp_path: Path, name: str):
    task = str(write_task(tmp_path))
    alone = kept("check", task)
    assert "schedule:" not in alone.stdout
    assert kept("check", task, "--json").json["schedule"] is None, "there is nobody to choose from"
    (tmp_path / "edit.sh").write_text("true")
    command = "{kind: command, command: sh edit.sh}"
    both = ("--set", f"proposers=[{command}, {command}]", "--set", f"schedule={name}")
    assert kept("check", task, *both).stdout.count(f"schedule: {name}") == 1
    assert json.loads(kept("check", task, *both, "--json").stdout)["schedule"] == name


def test_check_says_what_is_likely_beside_the_worst_case(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    write_task(here)
    (here / "cases.jsonl").write_text("".join(f'{{"q": "question {n}"}}\n' for n in range(40)))
    given = [RUNNER, EDIT, "cases={file: cases.jsonl}", "budget={max_iterations: 30}"]
    settings = [word for one in given for word in ("--set", one)]
    told = kept("check", "task.yaml", "--json", *settings).json
    useless, one_kept = told["likely"]["useless"], told["likely"]["kept"]
    assert useless["rollouts"] < one_kept["rollouts"] < told["at_most"]["rollouts"] / 5
    assert useless["usd"] == useless["rollouts"] * told["likely"]["usd_a_rollout"]
    # a reply of 200 tokens and a short prompt, and not the longest reply there may be
    assert 200 * 0.6e-6 < told["likely"]["usd_a_rollout"] < told["seed_call_usd"] / 20
    text = kept("check", "task.yaml", *settings).stdout
    assert (
        f"likely     about {round(useless['rollouts'], -2):,} rollouts (${useless['usd']:.2f}) "
        f"if no proposal is better, about {round(one_kept['rollouts'], -2):,} rollouts "
        f"(${one_kept['usd']:.2f}) if one is kept and proven\n"
    ) in text
    assert "taken for granted: what is no better is dropped as early as the gate can tell" in text
    assert "a reply 200 tokens at most; who else is paid is not counted" in text


CASES = "cases={file: cases.jsonl, split: '0:1:0'}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "assumed"),
    [
        ((), "runs of one text agree; where they differ, a candidate may take 60 a side"),
        ((CASES, "gate=strict"), "each candidate is judged once"),
        (
            ("budget={max_rollouts: 6}", "proposers=[{kind: command, command: sh edit.sh}]"),
            "nothing else ends it before its rollouts are used up",
        ),
    ],
    ids=["without cases", "with cases", "by rollouts"],
)
def test_a_run_takes_what_check_says(settings: tuple[str, ...], assumed: str, here: Path):
    write_task(here)
    (here / "cases.jsonl").write_text("".join(f'{{"q": {n}}}\n' for n in range(6)))
    (here / "edit.sh").write_text('echo good >>"$KEPT_CANDIDATE/prompt.md"\n')
    given = [word for one in settings for word in ("--set", one)]
    text = kept("check", "task.yaml", *given).stdout
    told = kept("check", "task.yaml", *given, "--json").json
    assert f"           taken for granted: {assumed}\n" in text
    done = kept("optimize", "task.yaml", *given, "--json").json
    used, kept_ = done["spend"]["rollouts"], done["keeps"]
    useless, one_kept = (told["likely"][name]["rollouts"] for name in ("useless", "kept"))
    # a keep takes as much more as `check` says of one; a crash may spare a rollout
    assert useless - 1 <= used <= useless + kept_ * (one_kept - useless)
    assert used <= told["at_most"]["rollouts"]


@pytest.mark.parametrize("most", [1255, 149, 96, 9])
def test_what_is_likely_is_never_shown_as_more_than_the_most(most: int, here: Path):
    write_task(here)
    (here / "edit.sh").touch()
    more = ("--set", "proposers=[{kind: command, command: sh edit.sh}]")
    text = kept("check", "task.yaml", *more, "--set", f"budget={{max_rollouts: {most}}}").stdout
    shown = re.findall(r"^(?:likely|at most) .*?([\d,]+) rollouts", text, re.MULTILINE)
    likely, at_most = (int(n.replace(",", "")) for n in shown)
    assert likely <= at_most == most


TIES = "policy={tie_breakers: [{lower: words}]}"
BOUNDS = "objective.bounds=[0, 100]"


@pytest.mark.parametrize(
    ("settings", "gate", "why"),
    [
        ((BOUNDS,), "race", None),
        (("gate=strict",), "strict", None),
        ((TIES, BOUNDS), "race", None),
        (
            (TIES, "objective.bounds=null"),
            "strict",
            "`policy.tie_breakers` of a race need `objective.bounds`",
        ),
        ((TIES, BOUNDS, "cases.split=0:8:2"), "strict", "need train cases, and there are none"),
        (("policy={keep_if: better_primary}",), "strict", "`policy.keep_if` asks for it"),
        (("cases.split=8:1:1",), "strict", "needs 8 deciding cases or more, and there are 3"),
        (("budget={max_rollouts: 20}",), "strict", "20 rollouts are too few for a race on"),
    ],
)
def test_check_says_why_it_is_not_a_race(
    here: Path, settings: tuple[str, ...], gate: str, why: str | None
):
    write_task(here)
    (here / "cases.jsonl").write_text("".join(f'{{"q": "{n}"}}\n' for n in range(30)))
    given = ("cases={file: cases.jsonl, split: '3:5:2'}", *settings)
    flags = [flag for one in given for flag in ("--set", one)]
    told = kept("check", "task.yaml", "--json", *flags).json["gate"]
    assert told["name"] == gate
    text = kept("check", "task.yaml", *flags).stdout
    if why is None:
        assert told["not_race"] is None
        assert "not `race`" not in text
    else:
        assert why in told["not_race"]
        assert f"not `race`: {told['not_race']}\n" in text


@pytest.mark.slow
def test_the_first_line_of_a_run_says_why_it_is_not_a_race(here: Path):
    write_task(here)
    kind, first, *_ = kept("optimize", "task.yaml").stderr.splitlines()
    assert kind == "task.yaml is a task"
    assert first.endswith(", gate repeats (not race: there are no cases)")


def test_check_says_how_many_runs_confirm_a_keep_without_cases(here: Path):
    write_task(here)
    flat = " ".join(kept("check", "task.yaml", "--set", "gate=repeats").stdout.split())
    assert "3 of the seed first, and 1 more to confirm a keep (4 where scores are only 0" in flat
    words = ("--set", "gate=repeats", "--set", "objective.deterministic=true")
    flat = " ".join(kept("check", "task.yaml", *words).stdout.split())
    assert "over one run a side, which nothing confirms: `deterministic` is true" in flat


def test_the_races_own_proposers_are_not_listed_and_hide_no_limit(here: Path):
    write_task(here)
    (here / "cases.jsonl").write_text("".join(f'{{"q": "{n}"}}\n' for n in range(40)))
    flags = ("--set", "cases={file: cases.jsonl}", "--set", "race={final: {most: 0}}")
    told = kept("check", "task.yaml", "--json", *flags).json
    assert told["gate"]["name"] == "race"
    assert told["proposers"] == ["variants"]
    assert told["schedule"] is None
    # of 20 steps in the budget, there are four texts to try
    more = (*flags, "--set", "budget={max_iterations: 200}")
    assert kept("check", "task.yaml", "--json", *more).json["at_most"] == told["at_most"]


def test_a_command_without_a_spec_says_how_to_take_the_one_that_is_here(here: Path):
    assert "`kept check --help` shows" in kept("check").stderr
    write_task(here)
    assert "hint: `kept check .` takes the task.yaml of this folder\n" in kept("check").stderr
