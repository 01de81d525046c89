"""What a skill is refused for: each answer that a case accepts is guarded by itself."""

import json
from pathlib import Path

import pytest

from kept.core.artifact import Candidate
from kept.evaluators.environments.base import SKILL, About, Environment, EnvSettings
from kept.evaluators.environments.chat_student import ChatRunner
from kept.evaluators.environments.datasets import part
from kept.evaluators.environments.jsonl import Jsonl
from kept.evaluators.environments.qa import SearchQa
from kept.evaluators.environments.registry import opened
from kept.recipes.skill.compile import Frontmatter, guards_of
from kept.testing import AcceptAll, ScriptedModel
from kept.testing.server import Seen
from tests.recipes.skill import world
from tests.recipes.skill.test_key_effects import ANEW, AWARE, ENDS, ran, said

ANSWERS = ["Rabindranath Tagore", "Gurudev", "The Bard\nof Bengal"]


def refused(folder: Path, env: Environment, text: str) -> list[str]:
    field = "answers" if isinstance(env, SearchQa) else "answer"
    rows = [{"id": f"q{n}", "question": f"Which poet {n}?", field: [f"Poet{n}"]} for n in range(5)]
    rows.append({"id": "tagore", "question": "Who wrote Gitanjali?", field: ANSWERS})
    (folder / "raw.json").write_text(json.dumps(rows), encoding="utf-8")
    settings = EnvSettings(name=env.name, folder=folder, data_path="raw.json")
    student = ChatRunner(env, ScriptedModel([]))
    made = opened(env, settings, part(env, settings), lambda _: student)
    seed = Candidate({SKILL: "# Skill\n"})
    changed = Candidate({SKILL: f"# Skill\n\n- {text}\n"})
    return [told for guard in guards_of(made) if (told := guard.check(seed, seed, changed))]


@pytest.mark.parametrize("env", [SearchQa(), Jsonl()], ids=["searchqa", "jsonl"])
@pytest.mark.parametrize(
    "text", ["say Rabindranath Tagore for poems", "Gurudev is right", "think of the bard of Bengal"]
)
def test_each_of_several_accepted_answers_is_refused_by_itself(
    tmp_path: Path, env: Environment, text: str
):
    (told,) = refused(tmp_path, env, text)
    assert told == "SKILL.md:3 holds the answer of the case `tagore`"
    assert not refused(tmp_path, env, "name the poet in full")


LEAK = f"When in doubt say {world.truth(3)}."


def leaking(seen: Seen) -> str:
    """The teacher puts what a case expects into whatever it writes into a skill."""
    if seen.model == "student" or "selected_indices" in world.properties(seen):
        return said(seen)
    told = json.loads(said(seen))
    for key in ("slow_update_content", "new_skill"):
        told |= {key: f"{world.START}{LEAK}"} if key in told else {}
    told |= {"appendix_notes": [LEAK]} if "appendix_notes" in told else {}
    for one in (*told.get("edits", ()), *told.get("patch", {}).get("edits", ())):
        # not the same for all who may say it, or the second would be a duplicate
        one["content"] = f"{LEAK} ({min(told)})"
    for one in told.get("patch", {}).get("skill_candidates", ()):
        one["new_skill"] = f"{world.START}{LEAK}"
    return json.dumps(told)


@pytest.mark.parametrize(
    ("words", "by"),
    [
        ((), "step"),
        (ANEW, "step"),
        (("optimizer.skill_update_mode=full_rewrite_minibatch",), "step"),
        (AWARE, "appendix"),
        ((*AWARE, "optimizer.appendix_gate=flush"), "appendix"),
        (ENDS, "slow_update"),
        (("optimizer.use_meta_reflect=true",), "meta_reflect"),
    ],
)
def test_no_way_into_the_skill_is_open_to_an_answer(
    tmp_path: Path, words: tuple[str, ...], by: str
):
    """Not even to what is taken as it is, without a comparison."""
    done = ran(tmp_path, *words, gate=AcceptAll(), say=leaking)
    judged = [one for one in done.state.history if one.turn.proposer == by and one.proposal]
    codes = {one.verdict.code for one in judged}
    assert "guard" in codes and codes <= {"guard", "duplicate"}
    assert done.state.incumbent == done.state.seed
    assert world.truth(3) not in (done.out / "best_skill.md").read_text()


def test_an_environment_that_only_tells_a_reference_is_guarded_line_by_line():
    assert About("task", reference="first\n\n second ").golds == ("first", "second")
    assert About("task", reference="a | b", golds=("a", "b")).golds == ("a", "b")


HEAD = "---\nname: dates\ndescription: How dates are written.\n---\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{HEAD}\nAnother body.\n", None),
        ("---\nname: dates\ndescription: Other words.\nversion: 2\n---\nBody.\n", None),
        ("Body.\n", "no frontmatter that can be read: it does not begin with one"),
        (f"A rule first.\n{HEAD}Body.\n", "it does not begin with one"),
        ("---\nname: dates\n---\nBody.\n", "has lost `description`"),
        ("---\nname: dates\ndescription:\n---\nBody.\n", "has nothing in `description`"),
        ("---\nname: times\ndescription: x\n---\nBody.\n", "has another `name`"),
        ("---\nname: [dates\n---\nBody.\n", "no frontmatter that can be read: line"),
        ("---\n- dates\n---\nBody.\n", "it is no mapping"),
    ],
)
def test_the_frontmatter_of_a_skill_stays_valid(text: str, told: str | None):
    seed = Candidate({"SKILL.md": f"{HEAD}Body.\n"})
    found = Frontmatter().check(seed, seed, Candidate({"SKILL.md": text}))
    assert found is None if told is None else told in str(found)


def test_a_skill_that_never_had_a_frontmatter_needs_none():
    seed = Candidate({"SKILL.md": "Body.\n"})
    assert Frontmatter().check(seed, seed, Candidate({"SKILL.md": "Other.\n"})) is None
