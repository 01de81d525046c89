"""A model as runner: what it is asked, and what becomes of its answer."""

import asyncio

import pytest

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import Message, ModelReply, ModelRequest
from kept.core.ports import Runner
from kept.core.rollout import Failure, Job, Purpose, Rollout
from kept.engine.replay import JournalScope
from kept.evaluators.runners.model import Form, ModelRunner, request_for, seed_of
from kept.models.scripted import Line
from kept.testing import MemoryJournal, RunnerSuite, ScriptedModel

CASE = Case("c", {"review": "I liked it", "stars": 5, "label": "positive"})
FORM = Form(("prompt.md",), ("review",))
SCHEMA = {"type": "object"}


def ask(text: str, form: Form = FORM, **files: str) -> ModelRequest:
    request = request_for(form, candidate(text, **files), CASE)
    assert isinstance(request, ModelRequest), request
    return request


def candidate(text: str, **files: str) -> Candidate:
    return Candidate({"prompt.md": text, **{f"{name}.yaml": body for name, body in files.items()}})


def run(line: Line, form: Form = FORM, journal: MemoryJournal | None = None) -> Rollout | Failure:
    job = Job("x", "c", 0, "decide")
    scope = JournalScope(journal or MemoryJournal(), job)
    runner = ModelRunner(ScriptedModel(lambda _: line), form, 10)
    return asyncio.run(runner.run(job, candidate("Label it."), CASE, scope))


class Hanging:
    name = "hanging"

    async def complete(self, request: ModelRequest) -> ModelReply | Failure:
        await asyncio.sleep(3600)
        raise AssertionError("nobody waits that long")


class TestModelRunner(RunnerSuite):
    form = Form(("text",), ("question",))

    def make_runner(self) -> Runner:
        return ModelRunner(ScriptedModel(["2"] * 8), self.form, 10)

    def make_crashing_runner(self) -> Runner:
        return ModelRunner(ScriptedModel([]), self.form, 10)

    def make_hanging_runner(self) -> Runner:
        return ModelRunner(Hanging(), self.form, 3600)


def test_a_prompt_is_the_system_message_and_the_case_follows_it():
    assert ask("Label it.\n").messages == (
        Message("system", "Label it."),
        Message("user", "I liked it"),
    )


def test_a_prompt_that_names_a_field_is_the_whole_message():
    assert ask("Of {{review}}, {{ review }}.").messages == (
        Message("user", "Of I liked it, I liked it."),
    )


def test_an_empty_prompt_leaves_the_case_alone():
    assert ask("\n").messages == (Message("user", "I liked it"),)


def test_several_fields_are_given_as_json_unless_the_prompt_names_them():
    form = Form(("prompt.md",), ("review", "stars"))
    assert ask("x", form).messages[1].text == '{"review": "I liked it", "stars": 5}'
    assert ask("{{stars}} of {{review}}", form).messages[0].text == "5 of I liked it"


def test_a_prompt_cannot_ask_for_the_answer():
    failure = request_for(FORM, candidate("It is {{label}}."), CASE)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == ("crash", "candidate")
    assert failure.message == "the prompt asks for `{{label}}`, which the model is not given"


def test_braces_in_a_case_stay_as_they_are():
    case = Case("c", {"review": "{{label}}", "label": "positive"})
    request = request_for(FORM, candidate("Of {{review}}."), case)
    assert isinstance(request, ModelRequest)
    assert request.messages[0].text == "Of {{label}}."


def test_comments_are_for_people_and_parts_are_put_together():
    form = Form(("examples.yaml", "prompt.md"), ("review",))
    text = ask("Label it. <!-- why:\nso -->", form, examples="<!-- begin -->\n\n<!-- end -->")
    assert text.messages[0] == Message("system", "Label it.")
    text = ask("Label it.", form, examples="<!-- begin -->\none\n<!-- end -->")
    assert text.messages[0] == Message("system", "one\n\nLabel it.")


def test_settings_are_read_from_an_artifact():
    form = Form(("prompt.md",), ("review",), SCHEMA, "settings.yaml")
    request = ask("x", form, settings="temperature: 0.25 # low\nmax_tokens: 7\n")
    assert (request.temperature, request.max_tokens, request.top_p) == (0.25, 7, None)
    assert request.schema == SCHEMA


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("temperature: warm", "`temperature` of settings.yaml is `warm`"),
        ("max_tokens: -1", "`max_tokens` of settings.yaml is `-1`"),
        ("top_p: true", "`top_p` of settings.yaml is `True`"),
        ("{", "no setting can be read"),
    ],
)
def test_settings_that_make_no_sense_are_the_candidates_own_failure(settings: str, words: str):
    form = Form(("prompt.md",), ("review",), {}, "settings.yaml")
    failure = request_for(form, candidate("x", settings=settings), CASE)
    assert isinstance(failure, Failure)
    assert failure.blame == "candidate"
    assert words in failure.message


def test_every_pair_has_a_seed_of_its_own_and_candidates_share_it():
    purposes: tuple[Purpose, ...] = ("decide", "promote")
    jobs = [
        Job("x", case, repeat, purpose)
        for case in ("a", "b")
        for repeat in (0, 1)
        for purpose in purposes
    ]
    seeds = {seed_of(job) for job in jobs}
    assert len(seeds) == len(jobs)
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert seed_of(Job("y", "a", 0, "decide")) == seed_of(Job("x", "a", 0, "decide"))


def test_the_answer_is_the_output_and_the_trace_is_the_conversation():
    rollout = run("positive")
    assert isinstance(rollout, Rollout)
    assert rollout.output == "positive"
    assert [(item.role, item.text) for item in rollout.trace] == [
        ("system", "Label it."),
        ("user", "I liked it"),
        ("assistant", "positive"),
    ]


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (ModelReply("no", finish="refused"), "refused", "would not answer"),
        (ModelReply(" \n"), "parse", "asked twice: there is no JSON in it"),
        (ModelReply("plainly"), "parse", "asked twice: there is no JSON in it"),
        (ModelReply('{"label": "pos', finish="length"), "parse", "cut off at max_tokens"),
    ],
)
def test_an_answer_that_cannot_be_scored_counts_against_the_candidate(
    reply: ModelReply, kind: str, words: str
):
    failure = run(reply, Form(("prompt.md",), ("review",), SCHEMA))
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == (kind, "candidate")
    assert words in failure.message
    if kind == "parse":
        assert failure.detail == reply.text, "what it said is kept"


def test_an_empty_answer_in_words_is_a_failure_too():
    failure = run(ModelReply(" \n"), Form(("prompt.md",), ("review",)))
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == ("empty", "candidate")


def test_a_failure_of_the_model_stays_what_it_is():
    failure = Failure("rate_limit", "infrastructure", "later")
    assert run(failure) == failure


def test_a_model_that_does_not_answer_in_time_is_an_outage():
    job = Job("x", "c", 0, "decide")
    runner = ModelRunner(Hanging(), FORM, 0.05)
    scope = JournalScope(MemoryJournal(), job)
    failure = asyncio.run(runner.run(job, candidate("x"), CASE, scope))
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == ("timeout", "infrastructure")


def test_a_reply_that_arrived_is_not_asked_for_again():
    journal = MemoryJournal()
    assert run("positive", journal=journal) == run("negative", journal=journal)
