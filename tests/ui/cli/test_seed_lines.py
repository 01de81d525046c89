"""Every command line that the method's source prints for an environment of ours, as it stands.

`python scripts/train.py` and `python scripts/eval_only.py` are `kept train` and `kept eval` here; a
path that its author made up leads to a file of the test.
"""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from kept.core.llm import ModelReply
from kept.testing.server import ModelServer, Seen
from tests.recipes.skill import world
from tests.sandbox.coding_agents.worlds import shell
from tests.ui.cli.tasks import kept

pytestmark = pytest.mark.slow

TRAIN = (
    "python scripts/train.py --config configs/searchqa/default.yaml",
    "python scripts/train.py --config configs/searchqa/default.yaml --split_mode ratio "
    "--data_path /path/to/searchqa_train_2000.json",
    "python scripts/train.py --config configs/searchqa/default.yaml --split_mode split_dir "
    "--split_dir /path/to/searchqa_split",
    "python scripts/train.py --config configs/searchqa/default.yaml --backend azure_openai "
    "--teacher_model gpt-5.4 --student_model gpt-5.4 --reasoning_effort medium",
)
EXEC = (
    "python scripts/train.py --config configs/searchqa/default.yaml "
    "--teacher_backend openai_chat --student_backend codex_exec --teacher_model gpt-5.4 "
    "--student_model gpt-5.4-codex --use_deep_reflect true "
    "--skill_update_mode rewrite_from_suggestions"
)
EVAL = (
    "python scripts/eval_only.py --config configs/searchqa/default.yaml "
    "--skill reflact/envs/searchqa/skills/initial.md"
)
MODES = (
    "",
    " --split_mode ratio --data_path /path/to/searchqa_train_2000.json",
    " --split_mode split_dir --split_dir /path/to/searchqa_split",
)
SIZES = {"train": 6, "val": 8, "test": 4}


def row(n: int) -> dict[str, Any]:
    told = {"question": f"What is number {n}?", "answers": [f"word{n * 17}"]}
    return {"id": f"q{n}", "context": f"[DOC] Number {n} is called word{n * 17}.", **told}


@pytest.fixture
def place(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data where the config of the source has it, and where its lines say."""
    start = 0
    for part, size in SIZES.items():
        rows = [row(n) for n in range(start, start + size)]
        start += size
        for folder in (here / "data" / "searchqa_split", here / "path/to/searchqa_split"):
            (folder / part).mkdir(parents=True)
            (folder / part / "items.json").write_text(json.dumps(rows))
    whole = [row(n) for n in range(40)]
    (here / "path/to/searchqa_train_2000.json").write_text(json.dumps(whole))
    skill = here / "reflact/envs/searchqa/skills/initial.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(world.START)
    monkeypatch.setenv("KEPT_CACHE", str(here / "cache"))
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "none")
    monkeypatch.setenv("AZURE_OPENAI_API_VERSION", "2025-04-01-preview")
    return here


def answer(seen: Seen) -> str:
    """Both are called `gpt-5.4`: what has a form to fill in is asked of the teacher."""
    if "response_format" in seen.body:
        return json.dumps(world.teach(seen))
    return world.searchqa_answer(seen)


def words(line: str, here: Path) -> list[str]:
    command, _, rest = line.partition(" --config ")
    verb = {"python scripts/train.py": "train", "python scripts/eval_only.py": "eval"}[command]
    given = shlex.split(f"--config {rest}")
    return [verb, *(word.replace("/path/to", str(here / "path/to")) for word in given)]


@pytest.mark.parametrize("line", TRAIN)
def test_a_line_of_the_source_trains_a_skill(
    line: str, place: Path, monkeypatch: pytest.MonkeyPatch
):
    with ModelServer(answer) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
        called = kept(*words(line, place))
        assert called.code == 0, called.stderr
        assert all("/deployments/gpt-5.4/" in seen.path for seen in server.log)
        efforts = {seen.body.get("reasoning_effort") for seen in server.log}
    assert efforts == {"medium"}
    (history,) = place.glob("outputs/searchqa/*/history.json")
    assert len(json.loads(history.read_text())) >= 4, "four epochs of a step"
    ratio = "ratio" in line
    splits = list(history.parent.glob("_generated_splits/*/split_manifest.json"))
    assert len(splits) == ratio, "a split by ratio is written down"


@pytest.mark.parametrize("mode", MODES, ids=["config", "ratio", "split_dir"])
def test_a_line_of_the_source_measures_a_skill(
    mode: str, place: Path, monkeypatch: pytest.MonkeyPatch
):
    with ModelServer(answer) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
        called = kept(*words(EVAL + mode, place), "--json")
        assert called.code == 0, called.stderr
        assert all(world.START.strip() in seen.lines[0].text for seen in server.log)
    results = json.loads(called.stdout)["results"]
    assert len(results) == (28 if "ratio" in mode else 4), "the test split"


PROBE = "Which word did you read?"


def agent_answer(seen: Seen) -> str | ModelReply:
    """Codex asks where OpenAI is, and the teacher is on Azure.

    The student looks at its task, at something else, and answers; the teacher wants to see the
    first rollout again, from behind its first step.
    """
    if seen.wire == "chat" and "probe_instruction" in world.properties(seen):
        told = {"reasoning": "to see", "probe_instruction": PROBE}
        return json.dumps({**told, "probe_target_id": "q0", "probe_after_step": 1})
    if seen.wire == "chat":
        return answer(seen)
    looks = (shell("codex_exec", "cat task.md"), shell("codex_exec", "echo two"))
    done = len(seen.tool_results)
    return looks[done] if done < 2 and PROBE not in seen.text else "<answer>no idea</answer>"


@pytest.mark.agents
@pytest.mark.sandbox
@pytest.mark.usefixtures("agent_clis")
def test_the_line_of_the_source_for_agents_trains_by_the_real_codex(
    place: Path, monkeypatch: pytest.MonkeyPatch
):
    """One epoch of it, for each rollout is a process: one deciding case, one to train on."""
    for part in SIZES:
        items = place / "data/searchqa_split" / part / "items.json"
        items.write_text(json.dumps(json.loads(items.read_text())[:1]))
    with ModelServer(agent_answer) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
        monkeypatch.setenv("OPENAI_BASE_URL", server.v1)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        called = kept(*words(EXEC, place), "--num_epochs", "1")
        assert called.code == 0, called.stderr
        asked = [seen for seen in server.log if seen.wire == "responses" and seen.tools]
    assert {seen.model for seen in asked} == {"gpt-5.4-codex"}
    assert max(len(seen.tool_results) for seen in asked) == 2
    (probe,) = (seen for seen in asked if PROBE in seen.text)
    assert len(probe.tool_results) == 1, "its history ends with the step that was chosen"
    assert "What is number 0?" in probe.tool_results[0]
    (step,) = place.glob("outputs/searchqa/*/steps/step_0001")
    assert (step / "rewrite_result.json").is_file()
