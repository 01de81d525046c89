"""What a file of an agent run may say of phases and plans, and what is wrong with it."""

from pathlib import Path

import pytest

from kept.errors import SpecError
from kept.recipes.agent_run.spec import AgentRunSpec
from kept.spec.source import source_of
from kept.spec.validate import validate


def _spec(text: str) -> AgentRunSpec:
    source = source_of(Path("run.yaml"), text, ())
    spec = validate(source, AgentRunSpec)
    source.check()
    assert spec is not None
    return spec


def test_phases_and_their_invariants_are_read() -> None:
    (phase,) = _spec(
        "phases:\n- name: size\n  command: wc -c a > b\n  seconds: 5\n"
        "  invariants: [{kind: file_size_range, path: b, least: 1}]\n"
    ).phases
    assert (phase.name, phase.seconds) == ("size", 5.0)
    assert phase.invariants[0].least == 1 and phase.invariants[0].most is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("phases: [{name: a}]", "phases[0].command"),
        ("phases: [{name: a/b, command: x}]", "phases[0].name"),
        ("phases: [{name: a, command: x, sec: 3}]", "sec"),
        (
            "phases:\n- {name: a, command: x}\n- {name: a, command: y}\n",
            "two `phases` are called `a`",
        ),
        (
            "phases:\n- {name: a, command: x, invariants: [{kind: exit_code, pattern: '('}]}",
            "run.yaml:2 phases[0].invariants[0].pattern: `(` is no regular expression",
        ),
        ("phases: [{name: a, command: x, invariants: [{kind: file_exist}]}]", "invariants[0].kind"),
        ("plan_tools: always", "plan_tools"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(SpecError) as told:
        _spec(text)
    assert problem in str(told.value)
