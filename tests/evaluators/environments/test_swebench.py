"""SWE-bench on repositories of our own: real git, real venvs, real tests in the real sandbox."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import ModelReply, ToolCall
from kept.core.rollout import Failure, Job, Rollout, Usage
from kept.core.score import Score
from kept.engine.replay import JournalScope
from kept.errors import SpecError
from kept.evaluators.environments.base import EnvSettings, Item
from kept.evaluators.environments.chat_student import ChatRunner, EnvScorer
from kept.evaluators.environments.datasets import part
from kept.evaluators.environments.swebench.environment import SweBench
from kept.evaluators.environments.swebench.evaluation import Evaluation, evaluate
from kept.evaluators.environments.swebench.instances import Instance, instance_of
from kept.evaluators.environments.swebench.testbed import Sources, Testbed, Testbeds
from kept.models.scripted import Line, ScriptedModel
from kept.testing import EnvironmentSuite, MemoryJournal
from tests.evaluators.environments.bugs import (
    BUGS,
    LEDGER,
    PYTEST,
    SHAPES,
    TEXTKIT,
    Bug,
    git,
    make_row,
    make_task,
    make_wheels,
)

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.git]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Repositories, wheels and task folders of the three bugs, and a cache for their venvs."""
    folder = tmp_path_factory.mktemp("swebench")
    for bug in BUGS:
        make_task(bug, folder / "repos", folder / "tasks")
    make_wheels(folder / "wheels", *PYTEST)
    rows = [make_row(bug, folder / "repos") for bug in BUGS]
    (folder / "rows.json").write_text(json.dumps(rows))
    return folder


@pytest.fixture(autouse=True)
def cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT_CACHE", str(home / "cache"))


def env_of(home: Path, **options: Any) -> SweBench:
    options = {"repos_dir": home / "repos", "wheels_dir": home / "wheels", **options}
    return SweBench(dataset_name="", **options)


def items_of(home: Path, env: SweBench | None = None) -> list[Item]:
    return list((env or env_of(home)).read(home / "rows.json"))


def instance(home: Path, bug: Bug) -> Instance:
    return next(instance_of(one.case) for one in items_of(home) if one.case.id == bug.id)


def graded(home: Path, case: Instance, patch: str, seconds: float = 120) -> Evaluation:
    async def once() -> Evaluation | Failure:
        bed = await Testbeds(Sources(home / "repos", home / "wheels")).of(case)
        assert isinstance(bed, Testbed), bed
        assert not bed.lacking
        return await evaluate(case, bed, patch, seconds)

    found = asyncio.run(once())
    assert isinstance(found, Evaluation), found
    return found


def wrong_patch(home: Path, bug: Bug) -> str:
    """What `git diff` says of the wrong change."""
    repo = home / "repos" / f"acme__{bug.name}"
    work = home / "wrong" / bug.name
    if not work.exists():
        git(repo, "worktree", "add", "-q", str(work), "base")
    subprocess.run(["bash", "-c", bug.wrong], cwd=work, check=True)
    return git(work, "diff")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_gold_resolves_and_empty_and_wrong_do_not(home: Path, bug: Bug):
    case = instance(home, bug)
    gold, empty = graded(home, case, case.gold), graded(home, case, "")
    wrong = graded(home, case, wrong_patch(home, bug))
    assert gold.resolved and gold.report.resolution == "RESOLVED_FULL", (str(gold), gold.log)
    assert set(gold.report.fixed) == set(bug.fail_to_pass)
    assert empty.report.resolution == "RESOLVED_NO" and not empty.report.fixed
    assert set(empty.report.maintained) == set(bug.pass_to_pass), empty.log
    assert not wrong.resolved and wrong.report.not_fixed and not wrong.why, str(wrong)


def test_task_folders_say_the_same_as_rows(home: Path):
    by_folder = {one.case.id: one for one in SweBench(dataset_name="lite").read(home / "tasks")}
    assert list(SweBench(dataset_name="verified").read(home / "tasks")) == []
    assert list(SweBench(hf_split="dev").read(home / "tasks")) == []
    for item in items_of(home):
        one, other = instance_of(item.case), instance_of(by_folder[item.case.id].case)
        ours = {"log_parser": other.setup.log_parser, "variables": {"LANG": "C.UTF-8"}}
        assert replace(one, setup=replace(one.setup, **ours)) == other
        assert by_folder[item.case.id].where.endswith(f"{item.case.id}/task.yaml:1")


def test_the_copy_has_no_later_history(home: Path):
    case = instance(home, LEDGER)

    async def bed() -> Testbed | Failure:
        return await Testbeds(Sources(home / "repos", home / "wheels")).of(case)

    found = asyncio.run(bed())
    assert isinstance(found, Testbed)
    assert git(found.repo, "log", "--all", "--format=%s").split("\n")[:2] == ["installed", "begin"]
    assert git(found.repo, "rev-parse", "HEAD~1").strip() == case.base_commit
    later = git(home / "repos" / "acme__ledger", "rev-parse", "fixed").strip()
    assert later not in git(found.repo, "cat-file", "--batch-all-objects", "--batch-check")


def test_a_package_is_compiled(home: Path):
    case = instance(home, TEXTKIT)
    graded(home, case, "")
    compiled = list(
        (home / "cache" / "envs").glob("swebench/acme__textkit-*/venv/**/_pytest/*/*.pyc")
    )
    assert compiled


def built(case: Instance, sources: Sources) -> Testbed | Failure:
    async def once() -> Testbed | Failure:
        return await Testbeds(sources).of(case)

    return asyncio.run(once())


def test_a_package_that_cannot_be_installed_is_left_out(home: Path):
    case = instance(home, TEXTKIT)
    more = (*case.setup.packages, "no-such-package==1.0")
    case = replace(case, setup=replace(case.setup, packages=more))
    found = built(case, Sources(home / "repos", home / "wheels"))
    assert isinstance(found, Testbed) and found.lacking == ("no-such-package==1.0",)
    # what was built is there for all
    again = built(case, Sources(home / "nowhere", home / "wheels"))
    assert isinstance(again, Testbed) and again.folder == found.folder
    case = replace(case, setup=replace(case.setup, packages=("no-such-package==1.0",)))
    failure = built(case, Sources(home / "repos"))
    assert isinstance(failure, Failure) and failure.blame == "infrastructure"
    assert failure.message.startswith("none of its packages can be installed")
    assert "hint: set `env.network: true`, or name a folder of wheels" in failure.message


def test_packages_are_looked_for_again_where_they_may_come_from_elsewhere(
    home: Path, tmp_path: Path
):
    case = replace(instance(home, TEXTKIT), version="8")
    wheels = make_wheels(tmp_path / "wheels", *PYTEST[:-1])
    sources = Sources(home / "repos", wheels)
    found = built(case, sources)
    assert isinstance(found, Testbed) and len(found.lacking) == 1
    make_wheels(wheels, PYTEST[-1])
    whole = built(case, sources)
    assert isinstance(whole, Testbed) and not whole.lacking
    assert built(case, sources) == whole


def test_tests_that_took_too_long_are_looked_at_again(home: Path):
    items = [one for one in items_of(home) if one.case.id == LEDGER.id]
    data: Any = items[0].case.data
    slow = {**data, "setup": {**data["setup"], "test_cmd": "sleep 2; python -m unittest -v tests"}}
    items = [items[0]._replace(case=replace(items[0].case, data=slow))]
    with pytest.raises(SpecError, match="the tests did not end within 1 second"):
        env_of(home, test_timeout=1).defects(items)
    with pytest.raises(SpecError, match="FAIL_TO_PASS 0 of 1"):
        env_of(home, test_timeout=60).defects(items)


def test_a_repository_is_cloned_only_where_the_config_opens_the_network(home: Path, tmp_path: Path):
    case = replace(instance(home, LEDGER), version="2.0")
    url = f"file://{home}/repos/acme__ledger"
    closed = built(case, Sources(tmp_path / "new", clone_url=url))
    assert isinstance(closed, Failure)
    assert "there is no repository of acme/ledger" in closed.message
    assert "set `env.network: true`" in closed.message
    assert isinstance(built(case, Sources(tmp_path / "new", network=True, clone_url=url)), Testbed)
    assert [one.name for one in (tmp_path / "new").iterdir()] == ["acme__ledger"]


def test_a_python_that_is_not_here_is_named(home: Path):
    case = instance(home, LEDGER)
    failure = built(replace(case, setup=replace(case.setup, python="2.1")), Sources(home / "repos"))
    assert isinstance(failure, Failure)
    hint = "install it, or name it in `env.pythons`"
    assert failure.message == f"there is no Python 2.1 here; hint: {hint}"


def test_rows_are_checked_all_at_once(tmp_path: Path):
    rows = [
        {"instance_id": "../x", "repo": "acme", "base_commit": "HEAD", "FAIL_TO_PASS": "[1]"},
        {**make_row(LEDGER, tmp_path / "repos"), "FAIL_TO_PASS": "[]", "patch": "--- a/../x\n"},
        {**make_row(LEDGER, tmp_path / "repos"), "setup": {"test_comand": "make test"}},
    ]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(SpecError) as caught:
        SweBench().read(tmp_path / "rows.jsonl")
    told = "\n".join(map(str, caught.value.problems))
    for line, words in (
        *((1, f"`{name}` is `") for name in ("instance_id", "repo", "base_commit")),
        *((1, f"there is no `{name}`") for name in ("problem_statement", "test_patch", "patch")),
        *((1, f"`{name}` is no list of") for name in ("FAIL_TO_PASS", "PASS_TO_PASS")),
        (2, "`FAIL_TO_PASS` is empty"),
        (2, "`patch` cannot be applied: the patch touches `../x`, which is outside"),
        (3, "`setup` has no `test_comand` (hint: it has env_vars, image, install, log_parser"),
    ):
        assert any(f"rows.jsonl:{line} {words}" in one for one in told.splitlines()), (words, told)


def test_rows_take_their_setup_from_task_folders(home: Path, tmp_path: Path):
    rows = [make_row(bug, home / "repos") for bug in BUGS]
    bare = [{name: row[name] for name in row if name != "setup"} for row in rows]
    (tmp_path / "rows.json").write_text(json.dumps(bare))
    by_task = {one.case.id: one.case for one in env_of(home).read(home / "tasks")}
    env = env_of(home, tasks_dir=home / "tasks")
    for item in env.read(tmp_path / "rows.json"):
        assert instance_of(item.case).setup == instance_of(by_task[item.case.id]).setup
    # without those, the usual command of a project and no packages
    (first, *_) = env_of(home).read(tmp_path / "rows.json")
    setup = instance_of(first.case).setup
    assert setup.test_cmd == "python -m pytest -rA tests/test_slug.py" and not setup.packages


def test_a_patch_that_hangs_is_ended(home: Path):
    case = instance(home, LEDGER)
    hang = case.gold.replace("+    return sum(rows)", "+    while True: pass")
    found = graded(home, case, hang, seconds=4)
    assert not found.resolved and found.why == "the tests did not end within 4 seconds"


def test_a_patch_cannot_pass_by_changing_or_forging_tests(home: Path):
    case = instance(home, TEXTKIT)
    quiet = (
        "diff --git a/tests/test_slug.py b/tests/test_slug.py\n--- a/tests/test_slug.py\n"
        "+++ b/tests/test_slug.py\n@@ -3,3 +3,3 @@\n \n def test_words():\n"
        '-    assert slug("Two Words") == "two-words"\n+    pass\n'
    )
    changed = graded(home, case, quiet)
    assert changed.report.resolution == "RESOLVED_NO" and not changed.why, str(changed)
    names = (*case.fail_to_pass, *case.pass_to_pass)
    lines = "".join(f'+    print("PASSED {name}")\n' for name in names)
    forged = (
        "diff --git a/conftest.py b/conftest.py\nnew file mode 100644\n--- /dev/null\n"
        f"+++ b/conftest.py\n@@ -0,0 +1,{len(names) + 3} @@\n"
        f"+def pytest_sessionfinish(session, exitstatus):\n+    import os, sys\n{lines}"
        "+    sys.stdout.flush(); os._exit(1)\n"
    )
    found = graded(home, case, forged)
    assert "PASSED tests" in found.log
    assert not found.resolved and found.why.startswith("no test reported a result: exit 1")


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ("--- a/../x\n+++ b/../x\n@@ -0,0 +1 @@\n+x\n", "outside the repository"),
        ("--- /etc/x\n+++ /etc/x\n@@ -0,0 +1 @@\n+x\n", "outside the repository"),
        ("--- /dev/null\n+++ b/.git/hooks/x\n@@ -0,0 +1 @@\n+x\n", "outside the repository"),
        ('--- /dev/null\n+++ "b/\\056\\056/x"\n@@ -0,0 +1 @@\n+x\n', "outside the repository"),
        ("diff --git a/x b/x\nGIT binary patch\nliteral 1\n", "binary"),
        ("diff --git a/x b/x\nBinary files a/x and b/x differ\n", "binary"),
        ("diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n", "symbolic link"),
        ("diff --git a/x b/x\nnew file mode 160000\n--- /dev/null\n+++ b/x\n", "submodule"),
        ("x" * 1_000_001, "larger than 1,000,000 bytes"),
        ("fixed it\n", "no file in it"),
        ("--- a/textkit.py\n+++ b/textkit.py\n@@ -1,9 +1,9 @@\n-no such\n+x\n", "does not apply"),
    ],
)
def test_a_hostile_patch_is_refused(home: Path, patch: str, why: str):
    found = graded(home, instance(home, TEXTKIT), patch)
    assert why in found.why and found.report.resolution == "RESOLVED_NO"


def test_instances_that_tell_nothing_are_left_out_by_name(home: Path, tmp_path: Path):
    fine = make_row(LEDGER, home / "repos")
    solved = {**fine, "instance_id": "acme__ledger-2", "FAIL_TO_PASS": fine["PASS_TO_PASS"]}
    lists = json.dumps(["test_gone (tests.test_ledger.LedgerTest)"])
    broken = {**fine, "instance_id": "acme__ledger-3", "FAIL_TO_PASS": lists}
    lost = {**fine, "instance_id": "acme__ledger-4", "repo": "acme/nowhere"}
    (tmp_path / "rows.jsonl").write_text(
        "\n".join(
            json.dumps({**row, "hints_text": str(n)})
            for n, row in enumerate((fine, solved, broken, lost))
        )
    )
    env = env_of(home)
    items = list(env.read(tmp_path / "rows.jsonl"))
    found = {d.case_id: d for d in env.defects(items)}
    assert sorted(found) == ["acme__ledger-2", "acme__ledger-3", "acme__ledger-4"]
    assert all(one.left_out for one in found.values())
    assert found["acme__ledger-2"].why == "its tests pass without any patch"
    assert "its gold patch does not resolve it here (RESOLVED_NO; FAIL_TO_PASS 0 of 1" in (
        found["acme__ledger-3"].why
    )
    assert "there is no repository of acme/nowhere" in found["acme__ledger-4"].why
    # each is looked at once, in all runs of this user
    (home / "repos").rename(home / "away")
    try:
        again = {d.case_id for d in env.defects(items)}
    finally:
        (home / "away").rename(home / "repos")
    assert again == set(found)
    with pytest.raises(SpecError, match="its tests pass without any patch"):
        env.defects(items[1:])


def test_where_nothing_can_be_set_up_all_is_told_at_once(home: Path, tmp_path: Path):
    env = env_of(home, repos_dir=tmp_path / "none")
    (tmp_path / "rows.json").write_text(
        json.dumps([{**make_row(b, home / "repos"), "version": "9"} for b in BUGS])
    )
    settings = EnvSettings(name="swebench", data_path=str(tmp_path / "rows.json"))
    with pytest.raises(SpecError) as caught:
        part(env, settings)
    told = [str(problem) for problem in caught.value.problems]
    assert len(told) == 3
    assert all(
        "there is no repository of acme/" in one and "hint: clone it to" in one for one in told
    )


def shell(*lines: str) -> Sequence[Line]:
    given = [json.dumps({"command": line}) for line in lines]
    calls = [(ToolCall(str(n), "bash", one),) for n, one in enumerate(given)]
    replies = [ModelReply("", Usage(1), "tool_calls", one) for one in calls]
    return [*replies, "The cause is removed."]


FIXES = {
    TEXTKIT.id: """sed -i 's/text.lower().*/"-".join(text.lower().split())/' textkit.py""",
    LEDGER.id: "sed -i 's/rows\\[1:\\]/rows/' ledger/__init__.py",
    SHAPES.id: "sed -i 's/a + b/a * b/' src/shapes/__init__.py",
}


def rolled(
    env: SweBench, case: Case, script: Sequence[Line], journal: MemoryJournal | None = None
) -> tuple[Rollout | Failure, Score | Failure | None]:
    async def once() -> tuple[Rollout | Failure, Score | Failure | None]:
        runner, scorer = ChatRunner(env, ScriptedModel(script)), EnvScorer(env)
        candidate = Candidate(env.skill())
        job = Job(candidate.id, case.id, 0, "decide")
        scope = JournalScope(journal or MemoryJournal(), job)
        try:
            rollout = await runner.run(job, candidate, case, scope)
            if isinstance(rollout, Failure):
                return rollout, None
            return rollout, await scorer.score(job, rollout, candidate, case, scope)
        finally:
            await runner.close()

    return asyncio.run(once())


class TestSweBench(EnvironmentSuite):
    folder: Path

    @pytest.fixture(autouse=True)
    def _folder(self, home: Path):
        self.folder = home

    def make_env(self):
        return env_of(self.folder)

    def data(self):
        return self.folder / "rows.json"

    def solving(self, case: Case):
        return shell(FIXES[case.id])

    def failing(self, case: Case):
        return shell(next(bug.wrong for bug in BUGS if bug.id == case.id))

    def metrics(self):
        return ("resolved", "fail_to_pass", "pass_to_pass")


def test_what_a_student_changed_is_the_patch_and_its_shell_is_confined(home: Path):
    """It reads neither the data nor later commits, and writes nowhere else."""
    env = env_of(home)
    item = next(one for one in items_of(home, env) if one.case.id == SHAPES.id)
    rollout, score = rolled(
        env,
        item.case,
        shell(
            f"cat {home}/rows.json {home}/repos/acme__shapes/src/shapes/*; cat {home}/tasks/*/*",
            "touch /usr/x /etc/x; exec 3<>/dev/tcp/127.0.0.1/9",
            "python -c 'from shapes import area; print(area(2, 3))'; git log --format=%s",
            f"{FIXES[SHAPES.id]}; printf '[core]\\nfsmonitor = touch pwned\\n' >> .git/config",
            "python -m pytest -q checks; mkdir __pycache__; touch __pycache__/x.pyc",
        ),
    )
    assert isinstance(rollout, Rollout) and isinstance(score, Score), (rollout, score)
    told = [item.text for item in rollout.trace if item.role == "tool"]
    assert "a * b" not in told[0] and "FAIL_TO_PASS" not in told[0]
    assert not told[0].startswith("exit 0")
    assert told[1].count("Read-only file system") == 2 and "unreachable" in told[1]
    assert "5\ninstalled\nbegin\n" in told[2] and "fix" not in told[2]
    assert "1 passed" in told[4]
    assert score.metrics["hard"] == 1, score
    # only the fix, though more lies in the folder
    assert rollout.output.count("diff --git") == 1 and "+    return a * b" in rollout.output


def test_a_file_that_is_no_utf8_is_patched_byte_by_byte(home: Path, tmp_path: Path):
    repo = tmp_path / "repos" / "acme__ledger"
    git(tmp_path, "clone", "-q", "-b", "base", str(home / "repos" / "acme__ledger"), str(repo))
    old = b"# -*- coding: latin-1 -*-\n# caf\xe9\ndef total(rows):\n    return sum(rows[1:])\n"
    (repo / "ledger" / "__init__.py").write_bytes(old)
    git(repo, "commit", "-qam", "latin-1")
    commit = git(repo, "rev-parse", "HEAD").strip()
    row = {**make_row(LEDGER, home / "repos"), "base_commit": commit}
    (tmp_path / "rows.json").write_text(json.dumps([row]))
    env = env_of(home, repos_dir=tmp_path / "repos")
    (item,) = env.read(tmp_path / "rows.json")
    rollout, score = rolled(env, item.case, shell(FIXES[LEDGER.id]))
    assert isinstance(rollout, Rollout) and "# caf\udce9" in rollout.output
    assert isinstance(score, Score) and score.metrics["hard"] == 1, score


def test_what_lies_elsewhere_on_the_machine_is_hidden_as_well(home: Path):
    """Temporary folders are private anyway; data and repositories may lie in a home."""
    with TemporaryDirectory(dir=Path.home(), prefix=".kept-test-") as name:
        place = Path(name)
        for part in ("repos", "tasks", "rows.json"):
            copy = shutil.copytree if (home / part).is_dir() else shutil.copy
            copy(home / part, place / part)
        env = env_of(home, repos_dir=place / "repos", tasks_dir=place / "tasks")
        case = next(one.case for one in env.read(place / "rows.json") if one.case.id == LEDGER.id)
        looks = [f"cat {place}/{one}" for one in ("rows.json", "repos/*/*/*.py", "tasks/*/*")]
        test = f"! grep -q FAIL {place}/rows.json && python -m unittest -v tests.test_ledger"
        data: Any = case.data
        peeking = replace(case, data={**data, "setup": {"test_cmd": test}})
        rollout, score = rolled(env, peeking, shell(*looks, FIXES[LEDGER.id]))
    assert isinstance(rollout, Rollout) and isinstance(score, Score), rollout
    told = [item.text for item in rollout.trace if item.role == "tool"]
    assert not [one for one in told[:3] if one.startswith("exit 0") or "stdout" in one]
    assert score.metrics["hard"] == 1, "nor do the tests see it"


def test_a_cache_may_lie_in_the_folder_of_the_run(home: Path, monkeypatch: pytest.MonkeyPatch):
    """That folder is hidden from commands, and what they need is not."""
    monkeypatch.chdir(home)
    env = env_of(home)
    case = next(one.case for one in items_of(home, env) if one.case.id == LEDGER.id)
    rollout, score = rolled(env, case, shell(f"cat {home}/rows.json", FIXES[LEDGER.id]))
    assert isinstance(rollout, Rollout) and isinstance(score, Score), rollout
    assert score.metrics["hard"] == 1
    told = [item.text for item in rollout.trace if item.role == "tool"]
    assert "FAIL_TO_PASS" not in told[0] and not told[0].startswith("exit 0")


def test_the_shell_ends_where_its_time_does(home: Path):
    env = env_of(home, timeout_per_instance=1.5)
    case = next(one.case for one in items_of(home, env) if one.case.id == LEDGER.id)
    rollout, _ = rolled(env, case, shell("sleep 30", "sleep 30", FIXES[LEDGER.id]))
    assert isinstance(rollout, Failure)
    assert (rollout.kind, rollout.blame) == ("timeout", "candidate")


def test_more_replies_than_the_limit_are_no_answer(home: Path):
    env = env_of(home, step_limit=2)
    case = next(one.case for one in items_of(home, env) if one.case.id == LEDGER.id)
    _, score = rolled(env, case, shell("true", "true", "true"))
    assert isinstance(score, Score) and score.failure is not None
    assert score.failure.message.startswith("the model wanted tools 3 times")


def priced(*lines: str, usd: float = 0.4) -> Sequence[Line]:
    """The same, each reply at a price."""
    script = [ModelReply(one) if isinstance(one, str) else one for one in shell(*lines)]
    return [replace(cast("ModelReply", one), usage=Usage(1, usd=usd)) for one in script]


def test_replies_that_cost_as_much_as_the_limit_are_the_last(home: Path):
    """Each instance by itself; a resume counts what the journal has."""
    env, journal = env_of(home, cost_limit=0.8), MemoryJournal()
    case = next(one.case for one in items_of(home, env) if one.case.id == LEDGER.id)
    script = priced("true", FIXES[LEDGER.id], "true")
    _, score = rolled(env, case, script, journal)
    assert isinstance(score, Score) and score.failure is not None
    told = "the replies cost $0.8, and the limit for a case is $0.8"
    assert (score.failure.kind, score.failure.message) == ("limit", told)
    # nothing is left to be said: all of it is in the journal
    assert rolled(env, case, [], journal)[1] == score
    for limit in (1.7, 0.0):
        _, score = rolled(env_of(home, cost_limit=limit), case, script)
        assert isinstance(score, Score) and score.metrics["hard"] == 1, score
    with pytest.raises(ValueError, match="`cost_limit` is below 0"):
        env_of(home, cost_limit=-1.0)


def test_a_resume_works_and_tests_nothing_twice(home: Path):
    env, journal = env_of(home), MemoryJournal()
    case = next(one.case for one in items_of(home, env) if one.case.id == LEDGER.id)
    line = f"date +%N > stamp; {FIXES[LEDGER.id]}"
    first, score = rolled(env, case, shell(line), journal)
    # tests that were run again would not end in this time
    again, same = rolled(env_of(home, test_timeout=0.001), case, [], journal)
    assert isinstance(first, Rollout) and isinstance(again, Rollout)
    assert (again.output, again.metrics, again.files) == (first.output, first.metrics, first.files)
    assert isinstance(score, Score) and score.metrics["hard"] == 1
    assert same == score
