"""Functions of a user as metrics, in processes of their own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kept.core.score import Score
from kept.evaluators.metrics import code_grader
from kept.evaluators.metrics.code_grader import problem_with_grader
from kept.sandbox import worker
from kept.sandbox.capabilities import abilities
from tests.evaluators.metrics.talking import Row, measured, score, scorer, talk, told

# as a grader of the original's own samples begins
HOLODECK = "from holodeck.lib.test_runner.code_grader import GraderContext, GraderResult\n"


def grade(
    folder: Path, body: str, data: Row | None = None, answer: Any = "42", **given: Any
) -> Score:
    (folder / "graders.py").write_text(body)
    metric = {"type": "code", "grader": "graders:check", "retry_on_failure": 0, **given}
    case = {"name": "the case", "ground_truth": "42", **(data or {})}
    return score(scorer([metric], folder=folder), talk(answer), case)


def test_a_grader_of_the_original_runs_unchanged(tmp_path: Path):
    body = HOLODECK + (
        "import helper\n"
        "def check(ctx: GraderContext) -> GraderResult:\n"
        "    near = helper.near(ctx.agent_response, ctx.ground_truth)\n"
        "    how = {'reason': 'near', 'details': {'n': [1]}}\n"
        "    return GraderResult(score=near, passed=near > 0.5, **how)\n"
    )
    (tmp_path / "helper.py").write_text("def near(a, b):\n    return 0.75 if a == b else 0.0\n")
    found = grade(tmp_path, body)
    assert found.metrics == {"check": 0.75, "passed": 1.0}
    row = told(found, "check")
    assert (row["kind"], row["details"], row["passed"]) == ("code", {"n": [1]}, True)
    assert measured(found)[0].text == "near"


def test_a_grader_of_one_exchange_is_told_the_case_and_the_tools(tmp_path: Path):
    """Bug 15: with a single turn there was no name of the case, and there were no tools."""
    body = HOLODECK + (
        "from holodeck.models.test_result import ToolInvocation\n"
        "from dataclasses import FrozenInstanceError, asdict\n"
        "def check(ctx):\n"
        "    assert isinstance(ctx, GraderContext)\n"
        "    assert isinstance(ctx.tool_invocations[0], ToolInvocation)\n"
        "    try:\n"
        "        ctx.turn_index = 7\n"
        "    except FrozenInstanceError:\n"
        "        return GraderResult(1.0, details=asdict(ctx))\n"
    )
    tools = [("add", {"a": 1}, "é", ("found",))]
    found = grade(tmp_path, body, answer=("42", tools))
    assert found.failure is None, found.failure
    assert told(found, "check")["details"] == {
        "turn_input": "question 0",
        "agent_response": "42",
        "ground_truth": "42",
        "tool_invocations": [
            {
                "name": "add",
                "args": {"a": 1},
                "result": "é",
                "bytes": 2,
                "duration_ms": 250,
                "error": None,
            }
        ],
        "retrieval_context": ["found"],
        "turn_index": 0,
        "test_case_name": "the case",
        "turn_config": {},
    }


def test_each_turn_has_its_index_and_its_own_settings(tmp_path: Path):
    body = "def check(ctx):\n    return ctx.turn_config['want'] == ctx.turn_index\n"
    (tmp_path / "graders.py").write_text(body)
    turns = [{"input": "a", "turn_config": {"want": want}} for want in (0, 7)]
    metric = {"type": "code", "grader": "graders:check", "name": "mine"}
    one = scorer([metric], folder=tmp_path)
    found = score(one, talk("x", "y"), {"turns": turns})
    assert found.metrics == {"mine": 0.5, "passed": 0.0}


@pytest.mark.parametrize(
    ("returned", "threshold", "value", "passed"),
    [
        ("True", None, 1.0, True),
        ("False", None, 0.0, False),
        ("0.5", None, 0.5, True),
        ("0.4", None, 0.4, False),
        ("0.4", 0.3, 0.4, True),
        ("1", None, 1.0, True),
        ("7.5", None, 1.0, True),
        ("GraderResult(0.9, passed=False)", None, 0.9, False),
        ("GraderResult(0.1, passed=True)", 0.5, 0.1, True),
        ("GraderResult(0.6)", 0.7, 0.6, False),
    ],
)
def test_truths_and_numbers_are_results_too(
    tmp_path: Path, returned: str, threshold: float | None, value: float, passed: bool
):
    body = HOLODECK + f"def check(ctx):\n    return {returned}\n"
    found = grade(tmp_path, body, threshold=threshold)
    assert found.metrics == {"check": value, "passed": float(passed)}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("def check(ctx):\n    raise KeyError('x')\n", "raised KeyError: 'x'"),
        ("def check(ctx):\n    return 'good'\n", "returned str"),
        ("def check(ctx):\n    return float('nan')\n", "returned nan"),
        ("def check(ctx):\n    import os\n    os._exit(3)\n", "ended with exit 3"),
        (
            HOLODECK + "def check(ctx):\n    return GraderResult(1.0, details={'a': {1}})\n",
            "not JSON serializable",
        ),
        ("def check(ctx):\n    import time\n    time.sleep(60)\n", "did not answer within 0.3"),
    ],
)
def test_a_grader_that_breaks_is_nobodys_score_and_the_rest_is_measured(
    tmp_path: Path, body: str, why: str
):
    (tmp_path / "graders.py").write_text(body)
    metrics = [
        {
            "type": "code",
            "grader": "graders:check",
            "timeout_ms": 300,
            "retry_on_failure": 1,
        },
        {"metric": "equality"},
    ]
    found = score(scorer(metrics, folder=tmp_path), talk("42"), {"ground_truth": "42"})
    row = told(found, "check")
    assert (row["score"], row["passed"], row["blame"], row["tries"]) == (
        None,
        None,
        "infrastructure",
        2,
    )
    assert why in row["error"]
    assert found.failure is not None and why in found.failure.message
    assert found.metrics == {"equality": 1.0}


def test_a_grader_that_raises_once_is_called_again(tmp_path: Path):
    body = (
        "been = []\n"
        "def check(ctx):\n"
        "    been.append(1)\n"
        "    if len(been) == 1:\n"
        "        raise OSError('not yet')\n"
        "    print('noise')\n"
        "    return True\n"
    )
    found = grade(tmp_path, body, retry_on_failure=2)
    assert found.metrics == {"check": 1.0, "passed": 1.0}
    assert told(found, "check")["tries"] == 2


@pytest.mark.sandbox
@pytest.mark.parametrize("where", ["{folder}/agent.yaml", "{folder}/new", "{home}/new"])
def test_a_grader_writes_to_nothing_but_its_own_scratch(tmp_path: Path, where: str):
    if not abilities().walls:
        pytest.skip(f"bwrap does not work here: {abilities().why_not}")
    (tmp_path / "agent.yaml").write_text("name: mine\n")
    # a home below /tmp is hidden, and what is written there goes nowhere
    home = Path("/var") if Path.home().is_relative_to("/tmp") else Path.home()
    target = Path(where.format(folder=tmp_path, home=home))
    body = (
        "import tempfile\n"
        "from pathlib import Path\n"
        "def check(ctx):\n"
        "    Path(tempfile.mkdtemp(), 'mine').write_text('x')\n"
        f"    Path({str(target)!r}).write_text('x')\n"
        "    return True\n"
    )
    found = grade(tmp_path, body)
    assert told(found, "check")["error"] == (
        f"`graders:check` raised OSError: [Errno 30] Read-only file system: '{target}'"
        " (between walls only its own /tmp can be written to)"
    )
    assert (tmp_path / "agent.yaml").read_text() == "name: mine\n"
    assert not target.exists() or target.name == "agent.yaml"


def test_a_grader_sees_no_key_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-secret-that-nobody-sees")
    monkeypatch.setenv("HARMLESS", "as it may look")
    body = HOLODECK + (
        "import os\n"
        "from pathlib import Path\n"
        "def check(ctx):\n"
        "    above = Path(f'/proc/{os.getppid()}/environ')\n"
        "    seen = [str(dict(os.environ)), above.read_text(errors='replace')]\n"
        "    return GraderResult(1.0, details={'seen': seen})\n"
    )
    found = grade(tmp_path, body)
    assert found.failure is None, found.failure
    seen = str(told(found, "check")["details"]["seen"])
    assert "PATH" in seen
    assert "sk-a-secret" not in seen and "HARMLESS" not in seen


def test_without_walls_a_grader_works_and_what_does_not_hold_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    able = replace(abilities(), walls=False, why_not="no `bwrap` here")
    for module in (worker, code_grader):
        monkeypatch.setattr(module, "abilities", lambda: able)
    assert grade(tmp_path, "def check(ctx): return True\n").metrics == {"check": 1.0, "passed": 1.0}
    assert list(code_grader.grader_warnings(["graders:check"])) == [
        "nothing keeps the grader `graders:check` from writing to your files: no `bwrap` here"
    ]


@pytest.mark.parametrize(
    ("body", "target", "problem"),
    [
        ("def check(ctx): ...\n", "graders:check", None),
        (HOLODECK + "def check(ctx): ...\n", "graders:check", None),
        ("def check(ctx): ...\n", "graders:chekc", "has no `chekc`"),
        ("def check(ctx): ...\n", "grader:check", "no module `grader`"),
        ("1 / 0\n", "graders:check", "ZeroDivisionError"),
        ("check = 7\n", "graders:check", "not a function"),
        ("", "graders", "is not `module:function`"),
        ("from holodeck.lib import nothing\n", "graders:check", "cannot be imported"),
    ],
)
def test_a_grader_that_cannot_be_resolved_is_known_before_anything_is_spent(
    tmp_path: Path, body: str, target: str, problem: str | None
):
    (tmp_path / "graders.py").write_text(body)
    found = problem_with_grader(target, tmp_path)
    if problem is None:
        assert found is None
    else:
        assert found is not None and problem in found


def test_where_the_original_is_installed_its_own_classes_are_given(tmp_path: Path):
    package = tmp_path / "holodeck"
    for name in ("", "lib", "lib/test_runner", "models"):
        (package / name).mkdir(exist_ok=True)
        (package / name / "__init__.py").touch()
    fields = "turn_input agent_response ground_truth tool_invocations retrieval_context"
    (package / "lib" / "test_runner" / "code_grader.py").write_text(
        "from holodeck.models.test_result import ToolInvocation\n"
        "from collections import namedtuple\n"
        f"GraderContext = namedtuple('Own', '{fields} turn_index test_case_name turn_config')\n"
        "GraderResult = namedtuple('R', 'score passed reason details')\n"
    )
    (package / "models" / "test_result.py").write_text(
        "from collections import namedtuple\n"
        "ToolInvocation = namedtuple('Own', 'name args result bytes duration_ms error')\n"
    )
    body = HOLODECK + (
        "def check(ctx):\n"
        "    own = type(ctx).__name__ == type(ctx.tool_invocations[0]).__name__ == 'Own'\n"
        "    return GraderResult(float(own), None, None, None)\n"
    )
    found = grade(tmp_path, body, answer=("42", [("add", {}, "")]))
    assert found.metrics == {"check": 1.0, "passed": 1.0}
