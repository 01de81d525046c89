"""What a key of the method does, seen in a whole training: what is asked, decided and written.

`test_config_keys` looks at the plan of every key. Here a training is run with each value, by models
of this process, and compared with one that has the default.
"""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import ModelReply, ModelRequest
from kept.core.ports import Gate, Scope
from kept.core.rollout import FREE, Failure, Job, Rollout, TraceItem, Usage
from kept.core.schedules.epochs import Epochs
from kept.core.score import Score
from kept.core.state import State
from kept.errors import SetupError, SpecError
from kept.models.providers import ModelConfig
from kept.recipes.skill.compile import Asked, plan_of
from kept.run import start
from kept.store.home import Home
from kept.testing.server import Seen
from tests.recipes.skill import world
from tests.recipes.skill.skill_configs import sound_skill
from tests.recipes.skill.test_config_keys import CHANGED

CASES = (8, 8, 4)
ROOT = Path(__file__).parents[3]


@dataclass
class Watched:
    """A model of this process that remembers what it was asked, and how often at once."""

    name: str
    say: Callable[[Seen], str]
    log: list[Seen] = field(default_factory=list[Seen])
    most: int = 0
    _now: int = 0

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        body: dict[str, Any] = {
            "model": self.name,
            "messages": [{"role": one.role, "content": one.text} for one in request.messages],
            "seed": request.seed,
            "max_tokens": request.max_tokens,
            "reasoning_effort": request.effort,
            "response_format": {"json_schema": {"schema": request.schema}},
        }
        seen = Seen(len(self.log), "chat", "", {}, body)
        self.log.append(seen)
        self._now += 1
        self.most = max(self.most, self._now)
        for _ in range(3):
            await asyncio.sleep(0)
        self._now -= 1
        return ModelReply(self.say(seen), Usage(calls=1, tokens_in=10, tokens_out=5))


def said(seen: Seen) -> str:
    """As the world has it; of two edits of an analyst, one applies nowhere until it is mended."""
    if seen.model == "student":
        return world.answer(seen)
    if [*world.properties(seen)] == ["edits"]:
        lost = re.findall(r"^(\d+): \{", seen.text, re.MULTILINE)
        mended = [{"index": int(n), **world.edit(f"mended {n}")} for n in lost]
        return json.dumps({"edits": mended})
    told = world.teach(seen)
    edits: list[dict[str, Any]] = told.get("patch", {}).get("edits", [])
    if edits:
        lost = {"op": "replace", "target": "nowhere to be found", "content": edits[0]["content"]}
        edits.append(lost)
    return json.dumps(told)


class Student(world.Student):
    """Works as an agent CLI would, step by step."""

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        done = await super().run(job, candidate, case, scope)
        if isinstance(done, Failure):
            return done
        told = TraceItem("info", "", {"summary": "it looked once"})
        look = TraceItem("tool", "a b", {"command": "ls", "step": 1})
        trace = (*done.trace[:2], told, look, done.trace[2])
        return done._replace(trace=trace, usage=FREE)  # the scope has counted it


class Exact(world.Exact):
    """Right, wrong, or a little right."""

    async def score(
        self, job: Job, rollout: Rollout, candidate: Candidate, case: Case, scope: Scope
    ) -> Score | Failure:
        told = await super().score(job, rollout, candidate, case, scope)
        if isinstance(told, Failure):
            return told
        return told._replace(metrics={"hard": told.metrics["hard"], "soft": 0.5})


class Ran(NamedTuple):
    """A training, and all that was asked in it."""

    state: State
    out: Path
    teacher: Watched
    student: Watched

    def asked(self, key: str) -> list[Seen]:
        """What the teacher was asked for replies that have a key."""
        return [seen for seen in self.teacher.log if key in world.properties(seen)]

    @property
    def analysts(self) -> list[Seen]:
        return [*self.asked("failure_summary"), *self.asked("success_patterns")]

    @property
    def merges(self) -> list[Seen]:
        return [seen for seen in self.asked("edits") if "reasoning" in world.properties(seen)]

    @property
    def repairs(self) -> list[Seen]:
        return [seen for seen in self.asked("edits") if "reasoning" not in world.properties(seen)]

    @property
    def phases(self) -> list[str]:
        return [step.turn.phase for step in self.state.history]

    @property
    def caps(self) -> list[object]:
        return [step.turn.settings["max_edits"] for step in self.steps]

    @property
    def steps(self) -> list[Any]:
        return [step for step in self.state.history if step.turn.phase.endswith("/step")]

    @property
    def first_batch(self) -> set[str]:
        """The questions of the first step."""
        return {seen.text for seen in self.student.log[:4]}

    @property
    def open_at_once(self) -> int:
        """Steps that were open together at most."""
        most = now = 0
        (journal,) = self.out.parent.glob("home/runs/*/journal.jsonl")
        for line in journal.read_text().splitlines():
            now += ('"kind":"step_opened"' in line) - ('"kind":"step_closed"' in line)
            most = max(most, now)
        return most

    def file(self, name: str) -> Any:
        return json.loads((self.out / name).read_text())


def ran(
    folder: Path,
    *overrides: str,
    gate: Gate | None = None,
    say: Callable[[Seen], str] = said,
    **more: Any,
) -> Ran:
    path = world.write_config(folder, "http://127.0.0.1:9", epochs=2, batch=4)
    teacher, student = Watched("teacher", say), Watched("student", say)
    opened = world.opened(student, CASES, runner=Student(student), scorer=Exact(), **more)
    asked = Asked(teacher, ModelConfig(provider="scripted", model="none"))
    plan = plan_of(sound_skill(path, overrides), opened, overrides, "", asked).plan
    plan = replace(plan, probes=())  # nothing listens at the address of the config
    if gate is not None:
        assert isinstance(plan.schedule, Epochs)
        plan = replace(plan, gate=gate, schedule=replace(plan.schedule, sealed=False))
    ended = asyncio.run(start(plan, Home(folder / "home")))
    return Ran(ended.state, folder / "out", teacher, student)


def shown(seen: Seen) -> int:
    """Rollouts that an analyst is shown."""
    return seen.text.count("### Trajectory")


def largest(asked: Sequence[Seen]) -> int:
    return max(map(shown, asked))


def budget(asked: Sequence[Seen]) -> set[str]:
    return {found for seen in asked for found in re.findall(r"At most (\d+) edits", seen.text)}


def probes(one: Ran) -> int:
    return sum("PROBE: " in seen.lines[0].text for seen in one.student.log)


Check = Callable[[Ran, Ran], bool]
DEEP = ("gradient.use_deep_reflect=true",)
AWARE = ("optimizer.use_skill_aware_reflection=true",)
ANEW = ("optimizer.skill_update_mode=rewrite_from_suggestions",)
ENDS = ("optimizer.use_slow_update=true", "optimizer.use_meta_skill=true")

EFFECTS: dict[str, tuple[tuple[str, ...], str, Check]] = {
    "model.rewrite_reasoning_effort": (
        ANEW,
        "high",
        lambda a, b: (
            {one.body["reasoning_effort"] for one in a.asked("new_skill")} == {None}
            and {one.body["reasoning_effort"] for one in b.asked("new_skill")} == {"high"}
            and {one.body["reasoning_effort"] for one in b.analysts} == {None}
        ),
    ),
    "model.rewrite_max_completion_tokens": (
        ANEW,
        "1000",
        lambda a, b: (
            {one.body["max_tokens"] for one in a.asked("new_skill")} == {64_000}
            and {one.body["max_tokens"] for one in b.asked("new_skill")} == {1000}
            and {one.body["max_tokens"] for one in b.analysts} == {16_384}
        ),
    ),
    "model.codex_trace_to_teacher": (
        (),
        "false",
        lambda a, b: (
            all("it looked once" in one.text for one in a.analysts)
            and not any("it looked once" in one.text for one in b.analysts)
        ),
    ),
    "train.num_epochs": ((), "3", lambda a, b: (len(a.steps), len(b.steps)) == (4, 6)),
    "train.batch_size": ((), "8", lambda a, b: (len(a.steps), len(b.steps)) == (4, 2)),
    "train.accumulation": (
        ("train.batch_size=2",),
        "2",
        lambda a, b: (
            [row["accumulation_batches"] for row in a.file("history.json")] == [1] * 8
            and [row["accumulation_batches"] for row in b.file("history.json")] == [2] * 4
            and {row["rollout_n"] for row in b.file("history.json")} == {4}
        ),
    ),
    "train.seed": (
        (),
        "8",
        lambda a, b: a.first_batch != b.first_batch,
    ),
    "train.steps_at_once": (
        (),
        "2",
        lambda a, b: (a.open_at_once, b.open_at_once) == (1, 2),
    ),
    "gradient.minibatch_size": (
        (),
        "1",
        lambda a, b: largest(a.analysts) > 1 and largest(b.analysts) == 1,
    ),
    "gradient.merge_batch_size": (
        ("gradient.minibatch_size=1", "train.num_epochs=1"),
        "4",
        lambda a, b: len(a.merges) > len(b.merges) > 0,
    ),
    "gradient.analyst_workers": (
        ("gradient.minibatch_size=1",),
        "1",
        lambda a, b: (
            a.teacher.most > 1 and b.teacher.most == 1 and len(a.analysts) == len(b.analysts)
        ),
    ),
    "gradient.max_analyst_rounds": (
        (),
        "1",
        lambda a, b: bool(a.repairs) and not b.repairs,
    ),
    "gradient.failure_only": (
        (),
        "true",
        lambda a, b: bool(a.asked("success_patterns")) and not b.asked("success_patterns"),
    ),
    "gradient.use_deep_reflect": ((), "true", lambda a, b: not probes(a) and probes(b) > 0),
    "gradient.deep_reflect_failures": (
        (*DEEP, "gradient.deep_reflect_successes=0", "train.batch_size=8", "train.num_epochs=1"),
        "1",
        lambda a, b: (probes(a), probes(b)) == (4, 1),
    ),
    "gradient.deep_reflect_successes": (
        (*DEEP, "gradient.deep_reflect_failures=0"),
        "0",
        lambda a, b: (
            probes(b) == 0 < probes(a)
            and bool(a.asked("probe_instruction"))
            and not b.asked("probe_instruction")
        ),
    ),
    "gradient.reference_to_teacher": (
        (),
        "false",
        lambda a, b: (
            all("#### Hidden Reference" in one.text for one in a.analysts)
            and not any("#### Hidden Reference" in one.text for one in b.analysts)
            and not any("expected answer 1" in one.text for one in b.analysts)
        ),
    ),
    "optimizer.learning_rate": (
        (),
        "5",
        lambda a, b: (budget(a.analysts), budget(b.analysts)) == ({"2"}, {"5"}),
    ),
    "optimizer.min_learning_rate": (
        ("optimizer.learning_rate=4",),
        "3",
        lambda a, b: (a.caps[-1], b.caps[-1]) == (1, 3),
    ),
    "optimizer.lr_scheduler": (
        ("optimizer.learning_rate=4",),
        "constant",
        lambda a, b: a.caps[0] != a.caps[-1] and b.caps == [4, 4, 4, 4],
    ),
    "optimizer.skill_update_mode": (
        (),
        "full_rewrite_minibatch",
        lambda a, b: (
            not any("skill_candidates" in str(world.properties(one)) for one in a.analysts)
            and all("skill_candidates" in str(world.properties(one)) for one in b.analysts)
        ),
    ),
    "optimizer.use_meta_reflect": (
        (),
        "true",
        lambda a, b: "e1/meta_reflect" not in a.phases and "e1/meta_reflect" in b.phases,
    ),
    "optimizer.meta_learning_rate": (
        ("optimizer.use_meta_reflect=true",),
        "3",
        lambda a, b: (
            (budget(a.asked("meta_summary")), budget(b.asked("meta_summary"))) == ({"8"}, {"3"})
        ),
    ),
    "optimizer.use_slow_update": (
        ENDS,
        "false",
        lambda a, b: "e2/slow_update" in a.phases and "e2/slow_update" not in b.phases,
    ),
    "optimizer.slow_update_samples": (
        ENDS,
        "3",
        lambda a, b: (
            [len(one.file("slow_update/epoch_02/comparison_pairs.json")) for one in (a, b)]
            == [8, 3]
        ),
    ),
    "optimizer.use_meta_skill": (
        ENDS,
        "false",
        lambda a, b: "e2/meta_skill" in a.phases and "e2/meta_skill" not in b.phases,
    ),
    "optimizer.use_skill_aware_reflection": (
        (),
        "true",
        lambda a, b: not a.asked("appendix_notes") and bool(b.asked("appendix_notes")),
    ),
    "optimizer.skill_aware_appendix_source": (
        AWARE,
        "failure_only",
        lambda a, b: (
            all("appendix_notes" in world.properties(one) for one in a.asked("success_patterns"))
            and not any(
                "appendix_notes" in world.properties(one) for one in b.asked("success_patterns")
            )
            and all("appendix_notes" in world.properties(one) for one in b.asked("failure_summary"))
        ),
    ),
    "optimizer.skill_aware_consolidate_threshold": (
        AWARE,
        "1",
        lambda a, b: not a.asked("notes") and bool(b.asked("notes")),
    ),
    "optimizer.appendix_gate": (
        AWARE,
        "flush",
        lambda a, b: (
            a.phases[:3] == ["e1/step", "e1/step", "e1/appendix"]
            and b.phases[:3] == ["e1/step", "e1/appendix", "e1/step"]
        ),
    ),
    "evaluation.eval_test": (
        (),
        "false",
        lambda a, b: "claim" in a.phases and "claim" not in b.phases,
    ),
    "evaluation.gate_metric": (
        (),
        "soft",
        lambda a, b: (
            {row["gate_metric"] for row in b.file("history.json")} == {"soft"}
            and {row["candidate_gate_score"] for row in b.file("history.json")} <= {0.5, None}
            and not b.state.keeps
            and a.state.keeps > 0
        ),
    ),
    "evaluation.gate_mixed_weight": (
        ("evaluation.gate_metric=mixed",),
        "1.0",
        lambda a, b: (
            {row["candidate_gate_score"] for row in b.file("history.json")} <= {0.5, None}
            and not b.state.keeps
            and a.state.keeps > 0
        ),
    ),
    "env.workers": ((), "1", lambda a, b: a.student.most > 1 and b.student.most == 1),
    "env.out_root": (
        (),
        "elsewhere",
        lambda a, b: a.out.exists() and not b.out.exists() and Path("elsewhere").exists(),
    ),
    "env.exports": (
        (),
        "full",
        lambda a, b: (
            not [*a.out.rglob("conversation.json")] and bool([*b.out.rglob("conversation.json")])
        ),
    ),
    "budget.max_rollouts": (
        (),
        "12",
        lambda a, b: (
            a.state.stopped is not None
            and b.state.stopped is not None
            and (a.state.stopped.kind, b.state.stopped.kind) == ("iterations", "rollouts")
        ),
    ),
}
"""Of each key: what is set besides, its other value, and what must be seen of both."""


STUDENTS = "tests/recipes/skill/test_students.py"
ENVIRONMENTS = "tests/evaluators/environments"
SPLITS = f"{ENVIRONMENTS}/test_splitting.py"
CONFIGS = "tests/recipes/skill/test_skill_config.py"
LINES = "tests/ui/cli/test_seed_lines.py::test_a_line_of_the_source_trains_a_skill"
MODELS = "tests/recipes/skill/test_seed_models.py"
AZURE = f"{MODELS}::test_azure_is_asked_as_the_keys_of_the_seed_say"
ELSEWHERE: dict[str, str] = {
    "model.backend": f"{CONFIGS}::test_a_backend_that_is_laid_over_a_config_is_the_backend",
    "model.teacher": LINES,
    "model.student": LINES,
    "model.teacher_backend": f"{MODELS}::test_a_backend_is_a_provider",
    "model.student_backend": f"{MODELS}::test_a_backend_is_a_provider",
    "model.reasoning_effort": LINES,
    **{
        f"model.azure_openai_{key}": AZURE
        for key in ("endpoint", "api_version", "api_key", "auth_mode", "ad_scope")
    },
    "model.azure_openai_managed_identity_client_id": AZURE,
    "model.optimizer": f"{CONFIGS}::test_a_model_in_our_words_takes_the_place_of_an_inherited_one",
    "model.target": f"{STUDENTS}::test_a_chat_model_talks",
    "model.codex_exec_path": f"{STUDENTS}::test_an_agent_works_with_the_program_that_is_named",
    "model.codex_exec_sandbox": f"{STUDENTS}::test_an_agent_works_with_the_program_that_is_named",
    "model.codex_exec_profile": (
        f"{STUDENTS}::test_an_agent_that_cannot_work_is_said_before_anything_is_spent"
    ),
    "model.codex_exec_full_auto": f"{STUDENTS}::test_full_auto_puts_walls_round_codex",
    "model.codex_exec_reasoning_effort": (
        f"{STUDENTS}::test_how_long_codex_thinks_is_its_own_setting"
    ),
    "model.claude_code_exec_path": (
        f"{STUDENTS}::test_claude_works_with_the_program_that_is_named"
    ),
    "model.claude_code_exec_profile": (
        f"{STUDENTS}::test_an_agent_that_cannot_work_is_said_before_anything_is_spent"
    ),
    "train.train_size": f"{SPLITS}::test_a_train_size_that_is_not_met_is_an_error",
    "evaluation.use_gate": (
        f"{CONFIGS}::test_what_is_wrong_is_told_with_the_line_of_the_file_that_has_it"
    ),
    "evaluation.sel_env_num": f"{SPLITS}::test_selection_and_test_are_limited_to_their_first",
    "evaluation.test_env_num": f"{SPLITS}::test_selection_and_test_are_limited_to_their_first",
    "evaluation.gate": (
        "tests/recipes/skill/test_training.py"
        "::test_selection_keeps_what_scores_higher_and_claims_at_the_end"
    ),
    "env.name": f"{ENVIRONMENTS}/test_registry.py::test_every_built_in_environment_can_be_named",
    "env.skill_init": "tests/ui/cli/test_train.py::test_a_skill_is_trained_looked_at_and_adopted",
    "env.split_mode": f"{SPLITS}::test_a_split_that_cannot_be_had_is_said",
    "env.split_ratio": f"{SPLITS}::test_cases_are_shared_out_by_largest_remainder",
    "env.split_seed": f"{SPLITS}::test_the_same_data_and_seed_give_the_same_split",
    "env.split_dir": f"{SPLITS}::test_parts_go_by_either_of_their_names",
    "env.split_output_dir": f"{SPLITS}::test_a_split_that_is_there_is_left_alone",
    "env.limit": f"{ENVIRONMENTS}/test_contract.py::test_a_limit_takes_the_first_cases",
    "gradient.pictures_to_teacher": (
        "tests/recipes/skill/test_env_worlds.py"
        "::test_analysts_see_the_pictures_of_cases_where_the_config_wants_it"
    ),
    "env.data_path": f"{SPLITS}::test_a_split_that_cannot_be_had_is_said",
    "budget.max_usd": f"{__file__}::test_money_that_cannot_be_counted_is_no_limit",
    "budget.max_minutes": f"{__file__}::test_a_training_ends_with_its_minutes",
}
"""Where the effect of each other key is seen: what it becomes is in the plan, as told there."""


def test_every_key_of_a_config_is_seen_to_do_something():
    assert not EFFECTS.keys() & ELSEWHERE.keys()
    assert {*EFFECTS, *ELSEWHERE} == CHANGED.keys()
    for named in set(ELSEWHERE.values()):
        file, _, name = named.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(), named


def test_prompts_of_a_folder_come_before_those_of_the_environment(tmp_path: Path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "analyst_error.md").write_text("MINE\n")
    theirs = {"analyst_error": "THEIRS", "analyst_success": "THEIRS"}
    done = ran(tmp_path, f"prompts={mine}", prompts=theirs)
    told = {
        (seen.lines[0].text, "failure_summary" in world.properties(seen)) for seen in done.analysts
    }
    assert told == {("MINE", True), ("THEIRS", False)}
    assert done.file("config.json")["prompts"] == str(mine)
    (mine / "analyst_eror.md").write_text("?")
    with pytest.raises(SpecError, match=r"`analyst_eror` is no prompt .*`analyst_error`"):
        ran(tmp_path / "other", f"prompts={mine}")


def test_money_that_cannot_be_counted_is_no_limit(tmp_path: Path):
    far = "model.target={provider: openai_compatible, model: far, base_url: 'https://a.example'}"
    assert ran(tmp_path / "free", far).steps
    with pytest.raises(SetupError, match="`max_usd` cannot be kept: `openai_compatible/far`"):
        ran(tmp_path / "paid", far, "budget.max_usd=3")


def test_a_training_ends_with_its_minutes(tmp_path: Path):
    done = ran(tmp_path, "budget.max_minutes=0.0001")
    assert done.state.stopped is not None and done.state.stopped.kind == "minutes"


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[str, ...]], Ran]:
    """Trainings without the change, each done once."""
    known: dict[tuple[str, ...], Ran] = {}

    def found(with_it: tuple[str, ...]) -> Ran:
        if with_it not in known:
            known[with_it] = ran(tmp_path_factory.mktemp("before"), *with_it)
        return known[with_it]

    return found


@pytest.mark.parametrize("key", sorted(EFFECTS))
def test_a_key_does_what_its_row_says(
    key: str,
    before: Callable[[tuple[str, ...]], Ran],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(tmp_path)
    with_it, value, check = EFFECTS[key]
    assert check(before(with_it), ran(tmp_path, *with_it, f"{key}={value}"))
    assert not check(before(with_it), before(with_it)), "it would be seen if nothing changed"


def test_whole_skills_of_analysts_are_asked_for_as_the_config_says(tmp_path: Path):
    """They were asked for with 64,000 tokens, whatever it said."""
    more = ("model.rewrite_max_completion_tokens=1000", "model.rewrite_reasoning_effort=low")
    mode = "optimizer.skill_update_mode=full_rewrite_minibatch"
    done = ran(tmp_path, mode, *more, "gradient.minibatch_size=1", "train.num_epochs=1")
    asked = [*done.analysts, *done.asked("skill_candidates")]
    assert done.analysts and done.asked("skill_candidates")
    assert {one.body["max_tokens"] for one in asked} == {1000}
    assert {one.body["reasoning_effort"] for one in asked} == {"low"}
