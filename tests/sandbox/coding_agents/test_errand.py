"""Where each CLI finds its skill and its instructions, and how it is started."""

import json
import tomllib

import pytest

from kept.sandbox.coding_agents.definition import Errand, Target, rendered, skill_name
from kept.sandbox.coding_agents.run import CLIS

SKILL = "---\nname: Unit Conversion\ndescription: Units.\n---\nUse metres.\n"


@pytest.mark.parametrize(
    ("name", "folder", "always"),
    [
        ("codex_exec", ".agents/skills", "AGENTS.md"),
        ("claude_code_exec", ".claude/skills", "CLAUDE.md"),
        ("opencode_exec", ".claude/skills", "AGENTS.md"),
    ],
)
def test_a_skill_and_instructions_lie_where_the_cli_looks(name: str, folder: str, always: str):
    errand = Errand(prompt="go", skill={"SKILL.md": SKILL}, instructions="be brief\n")
    prompt, files = rendered(CLIS[name], errand)
    place = f"{folder}/unit-conversion/SKILL.md"
    assert files == {place: SKILL.encode(), always: b"be brief\n"}
    assert prompt == f"Use the skill `unit-conversion`: read {place} first.\n\ngo"


def test_a_skill_without_a_head_gets_one():
    _, files = rendered(CLIS["codex_exec"], Errand(prompt="", skill={"notes/units.md": "metres\n"}))
    text = files[".agents/skills/units/SKILL.md"].decode()
    assert text.startswith("---\nname: units\ndescription: ")
    assert text.endswith("---\n\nmetres\n")


def test_a_skill_of_many_files_keeps_them_beside_its_own():
    skill = {"s/SKILL.md": SKILL, "s/scripts/run.py": "print()\n", "other.md": "x"}
    _, files = rendered(CLIS["claude_code_exec"], Errand(prompt="", skill=skill))
    folder = ".claude/skills/unit-conversion"
    assert sorted(files) == [f"{folder}/{n}" for n in ("SKILL.md", "other.md", "scripts/run.py")]


def test_without_skill_and_instructions_nothing_is_added():
    assert rendered(CLIS["codex_exec"], Errand(prompt="go")) == ("go", {})


@pytest.mark.parametrize(
    ("path", "text", "name"),
    [
        ("SKILL.md", "no head", "skill"),
        ("a/b c/SKILL.md", "no head", "b-c"),
        ("units.md", "---\nname: 'Fun & Games'\n---\n", "fun-games"),
        ("x.md", "---\nname: 漢字\n---\n", "skill"),
    ],
)
def test_a_skill_is_called_by_its_head_or_its_place(path: str, text: str, name: str):
    assert skill_name(path, text) == name


def target(provider: str, **more: str) -> Target:
    return Target(provider=provider, model='m"1', base_url="http://127.0.0.1:1/v1", **more)  # pyright: ignore[reportArgumentType] # an effort


def test_codex_is_told_its_model_by_a_config_that_gives_the_key_to_no_tool():
    (text,) = CLIS["codex_exec"].home(target("openai", effort="low")).values()
    config = tomllib.loads(text)
    assert config["model"] == 'm"1'
    assert config["model_reasoning_effort"] == "low"
    provider = config["model_providers"][config["model_provider"]]
    assert provider["base_url"] == "http://127.0.0.1:1/v1"
    assert (provider["wire_api"], provider["env_key"]) == ("responses", "OPENAI_API_KEY")
    assert config["shell_environment_policy"] == {"inherit": "core"}


def test_claude_is_told_its_model_by_words_and_its_address_without_a_version():
    cli = CLIS["claude_code_exec"]
    assert cli.environment(target("anthropic"))["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1"
    words = cli.words(target("anthropic", effort="high"), "")
    assert words[words.index("--model") + 1] == 'm"1'
    assert words[words.index("--effort") + 1] == "high"
    assert cli.words(target("anthropic"), "abc")[-2:] == ["--resume", "abc"]


@pytest.mark.parametrize(
    ("provider", "package"),
    [("anthropic", "@ai-sdk/anthropic"), ("ollama", "@ai-sdk/openai-compatible")],
)
def test_opencode_is_told_its_model_by_a_config(provider: str, package: str):
    (text,) = CLIS["opencode_exec"].home(target(provider)).values()
    config = json.loads(text)["provider"]["kept"]
    assert config["npm"] == package
    assert config["options"]["baseURL"] == "http://127.0.0.1:1/v1"
    assert config["options"]["apiKey"] == "{env:KEPT_AGENT_KEY}"


@pytest.mark.parametrize("name", CLIS)
def test_no_key_is_in_a_command_line_or_a_file(name: str):
    cli = CLIS[name]
    given = target(cli.providers[0])
    assert cli.key not in cli.environment(given)
    assert "sk-" not in json.dumps([cli.words(given, ""), dict(cli.home(given))])
