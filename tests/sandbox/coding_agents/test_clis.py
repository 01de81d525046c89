"""The real CLIs from npm, each on an errand, with a scripted model behind real HTTP."""

import asyncio
import re
from pathlib import Path

import pytest

from kept.core.rollout import Failure, Rollout
from kept.sandbox.coding_agents.definition import Errand
from kept.sandbox.coding_agents.result import session_of
from kept.sandbox.coding_agents.run import CLIS
from kept.testing.server import Fault, ModelServer
from tests.sandbox.coding_agents.worlds import KEYS, harness, roles, script, send, shell

pytestmark = [pytest.mark.agents, pytest.mark.slow, pytest.mark.sandbox]

KEY = "sk-canary-0123456789abcdef"
OTHER = "canary-of-somebody-else-42"
SKILL = "---\nname: units\ndescription: Say units.\n---\nUse metres.\n"
BOTH = ("codex_exec", "claude_code_exec")


@pytest.fixture(autouse=True)
def _keys(agent_clis: Path, monkeypatch: pytest.MonkeyPatch):
    for name in KEYS.values():
        monkeypatch.setenv(name, KEY)
    monkeypatch.setenv("SOME_SECRET_KEY", OTHER)


def go(name: str, server: ModelServer, tree: Path, errand: Errand) -> Rollout:
    found = asyncio.run(send(harness(name, server, tree), errand))
    assert isinstance(found, Rollout), found
    return found


@pytest.mark.parametrize("name", CLIS)
def test_a_cli_does_an_errand_with_the_skill_where_it_looks_for_it(name: str, tmp_path: Path):
    cli = CLIS[name]
    skill = f"{cli.skills}/units/SKILL.md"
    look = f"cat {skill} {cli.instructions} note.txt; pwd; env; ls -A ~"
    replies = script(
        shell(name, look, "I will look."), shell(name, "echo 1.83 > answer.txt"), "It is 1.83 m."
    )
    errand = Errand(
        prompt="six feet?",
        files={"note.txt": b"feet\n"},
        skill={"SKILL.md": SKILL},
        instructions="Be brief.\n",
    )
    with ModelServer(replies) as server:
        rollout = go(name, server, tmp_path, errand)
        asked = [seen for seen in server.log if seen.tools]
        assert any(KEY in value for value in asked[0].headers.values()), "it has its key"
        told = f"Use the skill `units`: read {skill} first.\n\nsix feet?"
        assert any(told in line.text for line in asked[0].lines)
        assert "Say units." in str(asked[0].body), "the CLI itself has found the skill"
    assert rollout.output == "It is 1.83 m."
    steps = [item for item in rollout.trace if "step" in item.data]
    assert [item.role for item in steps] == ["assistant", "tool", "tool", "assistant"]
    seen = steps[1].text
    for words in ("Use metres.", "Be brief.", "feet", "/run/kept/output"):
        assert f"  {words}" in seen
    # a home of its own, and of our environment neither its key nor anybody else's
    assert "HOME=/run/kept/home" in seen
    assert not re.search(f"{KEY}|secret|{OTHER}", seen, re.IGNORECASE)
    assert rollout.files["answer.txt"] == b"1.83\n"
    assert rollout.files["note.txt"] == b"feet\n"
    assert cli.raw in rollout.files
    assert (cli.session in rollout.files) == (cli.ends_step is not None)
    assert b"[2] tool: $ cat" in rollout.files[cli.summary]
    assert not [path for path in rollout.files if "SKILL" in path or path.startswith(".kept")]
    usage = rollout.usage
    assert usage.calls == 1
    assert usage.tokens_in > 1000
    assert usage.tokens_out > 3


@pytest.mark.parametrize("name", BOTH)
def test_a_key_that_a_tool_gets_hold_of_is_nowhere_in_what_comes_back(name: str, tmp_path: Path):
    find = "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | sort -u"
    replies = script(shell(name, f"{find} | tee found.txt"), f"The key is {KEY}.")
    with ModelServer(replies) as server:
        rollout = go(name, server, tmp_path, Errand(prompt="find the key"))
    assert "[secret]" in rollout.output
    assert b"[secret]" in rollout.files["found.txt"], "a tool can read it: the test would be void"
    assert KEY not in repr(rollout)
    assert OTHER not in repr(rollout)


@pytest.mark.parametrize("name", BOTH)
def test_an_agent_goes_on_from_a_step_of_an_earlier_rollout(name: str, tmp_path: Path):
    replies = script(shell(name, "echo one"), shell(name, "echo two"), "the end")
    with ModelServer(replies) as server:
        first = go(name, server, tmp_path, Errand(prompt="begin"))
    session = session_of(CLIS[name], first, after=1)
    assert session is not None
    with ModelServer(script("unused", "on from one")) as server:
        second = go(name, server, tmp_path, Errand(prompt="and now?", session=session))
        (seen,) = (seen for seen in server.log if seen.tools)
        assert [text.strip().splitlines()[-1] for text in seen.tool_results] == ["one"]
        assert "and now?" in seen.text
        assert "begin" in str(seen.body)
    assert second.output == "on from one"


# the others ask again for ten seconds; how they tell it is recorded, and read in `test_trouble`
def test_a_wrong_key_is_a_matter_of_setup(tmp_path: Path):
    name = "codex_exec"
    with ModelServer(script(Fault("status", 401, f"no such key: {KEY}"))) as server:
        found = asyncio.run(send(harness(name, server, tmp_path), Errand(prompt="hello")))
    assert isinstance(found, Failure)
    assert (found.kind, found.blame, found.retryable) == ("harness", "infrastructure", False)
    assert f"look at {KEYS[name]}" in found.message
    assert KEY not in repr(found)


def test_a_provider_that_does_not_answer_is_no_fault_of_the_candidate(tmp_path: Path):
    found: object = None
    for seconds in (4, 40):  # the first in which it comes to ask
        with ModelServer(script(Fault("slow", seconds=60))) as server:
            made = harness("claude_code_exec", server, tmp_path, seconds=seconds)
            found = asyncio.run(send(made, Errand(prompt="x")))
        if server.log:
            break
    assert isinstance(found, Failure)
    assert (found.kind, found.blame) == ("timeout", "infrastructure")


def test_an_agent_that_works_on_and_on_is_stopped_and_what_it_did_is_told(tmp_path: Path):
    found: object = None
    for seconds in (6, 60):  # the first in which it comes to work
        replies = script(shell("codex_exec", "echo begun; sleep 100", "I will wait."), "done")
        with ModelServer(replies) as server:
            made = harness("codex_exec", server, tmp_path, seconds=seconds)
            found = asyncio.run(send(made, Errand(prompt="x")))
        if isinstance(found, Failure) and "sleep 100" in found.detail:
            break
    assert isinstance(found, Failure)
    assert (found.kind, found.blame) == ("timeout", "candidate")
    assert "[2] tool: $ echo begun; sleep 100 [did not end]" in found.detail


def test_without_walls_it_still_has_a_home_and_an_environment_of_its_own(tmp_path: Path):
    replies = script(shell("claude_code_exec", "env; pwd"), "done")
    with ModelServer(replies) as server:
        made = harness("claude_code_exec", server, tmp_path, walls=False)
        found = asyncio.run(send(made, Errand(prompt="x")))
    assert isinstance(found, Rollout), found
    seen = found.trace[1].text
    assert re.search(r"HOME=/\S*/kept-\S*/home\n", seen)
    assert not re.search(f"{KEY}|secret|{OTHER}", seen, re.IGNORECASE)
    assert roles(found) == ["user", "tool", "assistant", "info"]
