"""What a failure may have lacked because of the walls round commands."""

import pytest

from kept.ui.cli._run import held_back

WALLS: dict[str, object] = {"network": "none", "env": []}


def test_a_variable_that_a_command_did_not_get_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    (told,) = held_back("run.py: KeyError: OPENAI_API_KEY", WALLS)
    assert "commands do not get it: `sandbox: {env: [OPENAI_API_KEY]}`" in told


@pytest.mark.parametrize(
    "message",
    [
        "nothing can be measured: `openai/gpt-5-mini` answered 401: no; look at OPENAI_API_KEY",
        "the connection to `openai/m` failed: Name or service not known, see OPENAI_API_KEY",
    ],
)
def test_a_model_that_kept_asks_itself_lacks_nothing_by_the_walls(
    message: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    assert list(held_back(message, WALLS)) == []
