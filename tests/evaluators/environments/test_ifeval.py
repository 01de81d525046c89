import json
from pathlib import Path
from typing import Any

import pytest

from kept.core.case import Case
from kept.core.rollout import Rollout
from kept.errors import SpecError
from kept.evaluators.environments.base import Graded
from kept.evaluators.environments.ifeval import CHECKS, IfEval, is_in, loosened, sentences_of, unmet
from kept.testing import EnvironmentSuite
from tests.evaluators.environments.shared import shared

DATA = Path(__file__).parent / "data" / "ifeval.jsonl"
LONG = "rain falls on the roof and runs down the pane as we sit in a room and see it pass for hours"


class TestIfEval(EnvironmentSuite):
    def make_env(self):
        return IfEval()

    def data(self):
        return DATA

    def solving(self, case: Case):
        return [{"1": LONG, "2": f'"<<Rain>>\n{LONG}"'}[case.id]]

    def failing(self, case: Case):
        return ["No, thanks."]

    def metrics(self):
        return ("loose", "followed")


FOLLOWED: list[tuple[str, dict[str, Any], str]] = [
    (
        "change_case:capital_word_frequency",
        {"capital_relation": "at least", "capital_frequency": 2},
        "NASA and the EU",
    ),
    (
        "change_case:capital_word_frequency",
        {"capital_relation": "less than", "capital_frequency": 2},
        "only NASA here",
    ),
    ("change_case:english_capital", {}, "THIS IS THE END OF IT."),
    ("change_case:english_lowercase", {}, "this is the end of it."),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi."}, "Say hi. Hi!"),
    ("combination:two_responses", {}, "one\n******\ntwo"),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, "[name] of [city]"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye.\nP. S. more"),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, "Bye.\nP.P.S more"),
    ("detectable_format:constrained_response", {}, "My answer is maybe."),
    ("detectable_format:json_format", {}, '```json\n{"a": [1]}\n```'),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        "Section 1\na\nSection 2\nb",
    ),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* one\n- two\n**no bullet**"),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*one* and **two**"),
    ("detectable_format:title", {}, "<<a title>>\ntext"),
    ("keywords:existence", {"keywords": ["Rain", "pane"]}, "rain on the Pane"),
    ("keywords:forbidden_words", {"forbidden_words": ["rock"]}, "a rocket"),
    ("keywords:frequency", {"relation": "at least", "keyword": "war", "frequency": 2}, "War, war"),
    ("keywords:frequency", {"relation": "less than", "keyword": "war", "frequency": 2}, "a war"),
    (
        "keywords:letter_frequency",
        {"let_relation": "less than", "letter": "T", "let_frequency": 2},
        "a tree",
    ),
    (
        "keywords:letter_frequency",
        {"let_relation": "at least", "letter": "#", "let_frequency": 2},
        "# and #",
    ),
    ("language:response_language", {"language": "de"}, "Der Hund ist nicht im Haus."),
    (
        "length_constraints:nth_paragraph_first_word",
        {"first_word": "weekend", "num_paragraphs": 2, "nth_paragraph": 2},
        'a b\n\n"Weekend, c',
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "one\n***\ntwo\n***\n"),
    (
        "length_constraints:number_sentences",
        {"relation": "less than", "num_sentences": 3},
        "Dr. Who came. He left!",
    ),
    ("length_constraints:number_words", {"relation": "at least", "num_words": 3}, "one two three"),
    ("punctuation:no_comma", {}, "no comma here"),
    ("startend:end_checker", {"end_phrase": "Any questions?"}, 'So it is. any questions?"'),
    ("startend:quotation", {}, ' "all of it" '),
]

BROKEN: list[tuple[str, dict[str, Any], str]] = [
    (
        "change_case:capital_word_frequency",
        {"capital_relation": "at least", "capital_frequency": 2},
        "NASA and the eu",
    ),
    ("change_case:english_capital", {}, "THIS IS THE END of it."),
    ("change_case:english_capital", {}, "DER HUND IST NICHT IM HAUS"),
    ("change_case:english_lowercase", {}, "This is the end of it."),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Say hi."}, "Hi! Say hi."),
    ("combination:two_responses", {}, "one\n******\none"),
    ("combination:two_responses", {}, "one"),
    ("combination:two_responses", {}, "one ****** two ****** three"),
    ("detectable_content:number_placeholders", {"num_placeholders": 3}, "[name] of [city]"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye. Perhaps."),
    ("detectable_format:constrained_response", {}, "My answer is perhaps."),
    ("detectable_format:json_format", {}, '{"a": [1}'),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 3},
        "Section 1\na\nSection 2\nb",
    ),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* one\n* two\n* three"),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, "*one* and ** **"),
    ("detectable_format:title", {}, "<< >>\na title"),
    ("keywords:existence", {"keywords": ["rain", "snow"]}, "rain"),
    ("keywords:forbidden_words", {"forbidden_words": ["rock"]}, "the Rock!"),
    ("keywords:frequency", {"relation": "at least", "keyword": "war", "frequency": 3}, "War, war"),
    (
        "keywords:letter_frequency",
        {"let_relation": "less than", "letter": "t", "let_frequency": 2},
        "The tree",
    ),
    ("language:response_language", {"language": "de"}, "The dog is not in the house."),
    (
        "length_constraints:nth_paragraph_first_word",
        {"first_word": "weekend", "num_paragraphs": 3, "nth_paragraph": 2},
        "a\n\nweekend c",
    ),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 3}, "one *** *** two"),
    (
        "length_constraints:number_sentences",
        {"relation": "at least", "num_sentences": 3},
        "Dr. Who came. He left!",
    ),
    ("length_constraints:number_words", {"relation": "at least", "num_words": 4}, "one two three"),
    ("punctuation:no_comma", {}, "one, two"),
    ("startend:end_checker", {"end_phrase": "Any questions?"}, "Any questions? No."),
    ("startend:quotation", {}, '"all" of it'),
]


@pytest.mark.parametrize(("kind", "args", "text"), FOLLOWED)
def test_an_instruction_that_is_followed_is_not_faulted(kind: str, args: Any, text: str):
    assert unmet(kind, text, args) == ""


@pytest.mark.parametrize(("kind", "args", "text"), BROKEN)
def test_an_instruction_that_is_not_followed_is_faulted(kind: str, args: Any, text: str):
    assert unmet(kind, text, args)


def test_every_kind_of_the_list_is_tested_both_ways():
    assert {kind for kind, _, _ in FOLLOWED} == set(CHECKS) == {kind for kind, _, _ in BROKEN}


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("ar", "هذا هو البيت الذي كان في المدينة"),
        ("bg", "Това не било за нас, защото или като който това има."),
        ("bn", "আমি বাংলায় লিখছি।"),
        ("fa", "این خانه در شهر است و برای ما خوب است"),
        ("fi", "Talo on iso ja se ei ole vanha, mutta hän oli siellä."),
        ("gu", "આ ઘર મોટું છે."),
        ("hi", "यह घर बड़ा है और हम इसमें रहते हैं।"),
        ("it", "La casa è grande e non sono solo, per me è bella."),
        ("kn", "ಈ ಮನೆ ದೊಡ್ಡದು."),
        ("ko", "이 집은 큽니다."),
        ("mr", "हे घर मोठे आहे आणि आम्ही तिथे राहतो."),
        ("ne", "यो घर ठूलो छ र हामी यहाँ बस्छौं।"),
        ("pa", "ਇਹ ਘਰ ਵੱਡਾ ਹੈ।"),
        ("pt", "A casa não é grande, mas você pode ficar com uma das chaves."),
        ("ru", "Это дом, и мы не знаем, что он большой."),
        ("sw", "Nyumba hii ni kubwa na watu wengi wako katika mji wa zamani."),
        ("ta", "இந்த வீடு பெரியது."),
        ("te", "ఈ ఇల్లు పెద్దది."),
        ("th", "บ้านหลังนี้ใหญ่"),
        ("ur", "یہ گھر بڑا ہے اور ہم اس میں رہتے ہیں"),
        ("vi", "Ngôi nhà này không lớn và tôi có một con chó."),
        ("en", "The house is not big and it was built for us."),
    ],
)
def test_a_language_is_told_from_all_others(code: str, text: str):
    assert is_in(text, code)
    others = {"ar", "bg", "de", "en", "fa", "hi", "it", "mr", "ne", "pt", "ru", "ur", "vi"} - {code}
    assert not [other for other in others if is_in(text, other)]


def test_a_text_in_two_scripts_is_in_no_language_alone():
    assert not is_in("यह घर बड़ा है, which means that the house is big", "hi")


def test_a_stop_that_abbreviates_ends_no_sentence():
    text = "Dr. Smith met J. Doe at 5 p.m. in the U.S. today. Was it late? No!\n1. A list\n- Yes"
    assert sentences_of(text) == [
        "Dr. Smith met J. Doe at 5 p.m. in the U.S. today.",
        "Was it late?",
        "No!",
        "1. A list",
        "- Yes",
    ]


def test_a_share_of_the_instructions_is_soft_and_not_hard():
    case = next(iter(IfEval().read(DATA))).case
    graded = IfEval().grade(case, Rollout(output="no comma"))
    assert isinstance(graded, Graded)
    assert (graded.hard, graded.soft) == (0.0, 0.5)
    assert graded.why.startswith("length_constraints:number_words: 2 words, and at least 20")


def test_the_loose_measure_forgives_a_first_line():
    case = list(IfEval().read(DATA))[1].case
    graded = IfEval().grade(case, Rollout(output=f'Sure!\n"<<Rain>>\n{LONG}"'))
    assert isinstance(graded, Graded)
    assert graded.hard == 0
    assert graded.metrics["loose"] == 1
    assert '"<<Rain>>' in loosened(f'Sure!\n"<<Rain>>\n{LONG}"')[2]


UNCHECKED: list[tuple[list[str], list[Any], str]] = [
    (["keywords:rhyme"], [{}], "`keywords:rhyme` is an instruction that nobody here can check"),
    (["startend:end_checker"], [{}], "`startend:end_checker` lacks `end_phrase`"),
    (["punctuation:no_comma"], [], "there are 1 instructions, and `kwargs` for 0"),
    (
        ["length_constraints:number_words"],
        [{"relation": "at least", "num_words": "many"}],
        "`num_words` of `length_constraints:number_words` is `many`",
    ),
    (
        ["keywords:existence"],
        [{"keywords": ["rain", 7]}],
        "`keywords` of `keywords:existence` is `['rain', 7]`",
    ),
]


@pytest.mark.parametrize(("kinds", "kwargs", "message"), UNCHECKED)
def test_an_instruction_that_cannot_be_checked_is_named(
    tmp_path: Path, kinds: list[str], kwargs: Any, message: str
):
    row = {"key": 1, "prompt": "p", "instruction_id_list": kinds, "kwargs": kwargs}
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    with pytest.raises(SpecError) as error:
        list(IfEval().read(tmp_path / "a.jsonl"))
    assert str(error.value).startswith(f"{tmp_path / 'a.jsonl'}:1 {message}")


def test_all_real_prompts_are_read_and_checked():
    env = IfEval()
    items = list(env.read(shared("ifeval", "input_data.jsonl")))
    assert len(items) == 541
    for case, _ in items:
        graded = env.grade(case, Rollout(output="Hello, World."))
        assert isinstance(graded, Graded)
        assert 0 <= graded.soft <= 1
        assert bool(graded.why) == (graded.hard == 0)
