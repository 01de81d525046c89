"""Templates: what people write into prompts, and what is refused."""

import time

import pytest

from kept.evaluators.templates.render import TemplateFault, names_of, render

VALUES: dict[str, object] = {
    "name": "Bo",
    "n": 3,
    "half": 0.5,
    "whole": 2.0,
    "yes": True,
    "gone": None,
    "items": ["a", "b"],
    "pairs": [["x", 1], ["y", 2]],
    "user": {"name": "Ann", "tags": ["new", "vip"]},
    "json": '{"city": "Rome"}',
    "text": "  hello world ",
}


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("Hi {{name}}!", "Hi Bo!"),
        ("{{ name | upper }} {{name|lower}}", "BO bo"),
        ("{{ user.name }} {{ user['tags'][1] }} {{ user.tags.length }}", "Ann vip 2"),
        ("{{ user | dump }}", '{"name":"Ann","tags":["new","vip"]}'),
        ("{{ items | dump(1) }}", '[\n "a",\n "b"\n]'),
        ("{{ (json | load).city }}", "Rome"),
        ("{{ items | join(', ') }} {{ items | first }}{{ items | last }}", "a, b ab"),
        ("{{ gone }}|{{ nobody }}|{{ nobody.at.all }}", "||"),
        ("{{ gone | default('none') }} {{ '' | default('e', true) }}", "none e"),
        ("{{ n }} {{ half }} {{ whole }} {{ yes }}", "3 0.5 2 true"),
        ("{{ n + 1 }} {{ n * 2 - 1 }} {{ n / 2 }} {{ n // 2 }} {{ n % 2 }}", "4 5 1.5 1 1"),
        ("{{ name + n }} {{ n ~ n }}", "Bo3 33"),
        ("{{ 'a' if n > 2 else 'b' }}", "a"),
        ("{% if n > 5 %}big{% elif n == 3 %}three{% else %}small{% endif %}", "three"),
        ("{% if not gone and yes %}both{% endif %}", "both"),
        ("{% if 'vip' in user.tags %}vip{% endif %}", "vip"),
        ("{% if n == '3' %}as JavaScript has it{% endif %}", "as JavaScript has it"),
        (
            "{% for i in items %}{{ loop.index }}.{{ i }}"
            "{% if not loop.last %},{% endif %}{% endfor %}",
            "1.a,2.b",
        ),
        ("{% for k, v in pairs %}{{ k }}={{ v }};{% endfor %}", "x=1;y=2;"),
        ("{% for k, v in {} %}{% endfor %}", None),
        ("{% for i in nobody %}x{% else %}nothing{% endfor %}", "nothing"),
        ("{% set greeting = 'Hi ' ~ name %}{{ greeting }}", "Hi Bo"),
        ("a {%- if yes -%} b {%- endif -%} c", "abc"),
        ("{# not said #}said", "said"),
        ("{% raw %}{{ name }}{% endraw %}", "{{ name }}"),
        ("{{ '}}' }}{{ \"it's\" }}", "}}it's"),
        ("{{ text | trim | title | replace('World', 'You') }}", "Hello You"),
        ("{{ '7.6' | int }} {{ '7.6' | float }} {{ 7.46 | round(1) }}", "7 7.6 7.5"),
        ("{{ items | length }}{{ name | reverse }}{{ text | wordcount }}", "2oB2"),
        ("no { braces } here }}", "no { braces } here }}"),
    ],
)
def test_a_template_says_what_nunjucks_makes_of_it(template: str, said: str | None):
    if said is None:
        with pytest.raises(TemplateFault):
            render(template, VALUES)
    else:
        assert render(template, VALUES) == said


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ name.split(',') }}", "functions and methods cannot be called here"),
        ("{{ name | shuffle }}", "there is no filter `shuffle` here"),
        ("{% include 'a.html' %}", "`{% include %}` is not supported"),
        ("{% macro m() %}{% endmacro %}", "`{% macro %}` is not supported"),
        ("{% if n %}", "`{% endif %}` is missing"),
        ("{% for n %}{% endfor %}", "`in` is missing"),
        ("{{ name", "`{{` is not closed by `}}`"),
        ("{{ }}", "something is missing"),
        ("{{ a b }}", "`b` is not expected there"),
        ("{{ name - 1 }}", "`-` is between"),
        ("{{ n / 0 }}", "division by zero"),
        ("{{ text | load }}", "`load` was given what is no JSON"),
        ("{{ " + "(" * 80 + "1" + ")" * 80 + " }}", "nested too deeply"),
    ],
)
def test_what_cannot_be_filled_in_says_why(template: str, why: str):
    with pytest.raises(TemplateFault) as told:
        render(template, VALUES)
    assert why in str(told.value)


def test_a_long_template_is_read_in_time_and_knows_its_lines():
    began = time.process_time()
    assert names_of("{{ a }}\n" * 60_000) == ("a",)
    with pytest.raises(TemplateFault) as raised:
        render("{{ " + "1 " * 200_000 + " }}", {})
    assert raised.value.line == 1
    with pytest.raises(TemplateFault) as raised:
        render("{% set a = 1 %}\n" * 60_000 + "{{ a", {})
    assert raised.value.line == 60_001
    assert time.process_time() - began < 10


def test_the_line_of_a_fault_is_told():
    with pytest.raises(TemplateFault) as told:
        render("one\ntwo\n{{ x | nope }}", {})
    assert told.value.line == 3


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in t %}{% for b in t %}{% for c in t %}x{% endfor %}{% endfor %}{% endfor %}",
        "{% for a in t %}{% set s = s ~ s ~ 'aaaaaaaa' %}{% endfor %}",
        "{{ t | replace('a', t) | replace('a', t) | replace('a', t) }}",
    ],
)
def test_a_template_that_would_go_on_for_ever_is_stopped(template: str):
    with pytest.raises(TemplateFault):
        render(template, {"t": "a" * 400})


def test_numbers_do_not_grow_without_end():
    doubled = "{% for c in t %}{% set n = n * n %}{% endfor %}{{ n }}"
    assert render(doubled, {"n": 3, "t": "a" * 60}) == "Infinity"


def test_a_value_of_python_is_out_of_reach():
    assert render("{{ name.__class__ }}{{ items.append }}", VALUES) == ""


def test_the_values_that_a_template_asks_for_are_known_without_filling_it_in():
    template = "{{a.b}}{% for x in c %}{{x}}{{d}}{% endfor %}{% set q = e %}{{q | default(f)}}"
    assert names_of(template) == ("a", "c", "d", "e", "f")


DEEPER = "{% for i in '" + "x" * 2000 + "' %}{% set a = [a] %}{% endfor %}"
TWICE = "{% for i in '" + "x" * 60 + "' %}{% set a = [a, a] %}{% set b = [b, b] %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ " + "not " * 3000 + "n }}", "an expression is too long"),
        ("{{ " + "- " * 3000 + "n }}", "an expression is too long"),
        ("{{ n" + " + n" * 3000 + " }}", "an expression is too long"),
        ("{{ user" + ".b" * 3000 + " }}", "an expression is too long"),
        ("{{ n" + "|trim" * 3000 + " }}", "an expression is too long"),
        ("{{ " + "[" * 3000 + "]" * 3000 + " }}", "nested too deeply"),
        ("{{ " + "9" * 5000 + " }}", "a number is too long"),
        (DEEPER + "{{ a }}", "nested too deeply"),
        (TWICE + "{{ a }}", "too much"),
        (TWICE + "{{ a == b }}", "too much"),
        (TWICE + "{{ a | sort | length }}", "too much"),
        ("{{ '\"'" + "|dump" * 24 + " }}", "`dump` would make too much text"),
        ("{% set b = '" + "b" * 20_000 + "' %}{{ b|list|join(b)|length }}", "`join` would make"),
        ("{% set b = '" + "b\\n" * 90_000 + "' %}{{ b|indent(99)|length }}", "`indent` would"),
        (
            "{% set b = '" + "b" * 90_000 + "' %}"
            "{% for i in b %}{% if b|upper|lower %}{% endif %}{% endfor %}",
            "the template works on too much",
        ),
    ],
)
def test_a_template_that_is_too_deep_or_makes_too_much_is_at_fault_itself(template: str, told: str):
    with pytest.raises(TemplateFault, match=told):
        render(template, VALUES)


LISTS = "{% set t = '" + "b" * 90_000 + "' %}{% set a = [t, t, t] %}{% set b = [t, t, t] %}"
TEN_THOUSAND = "{% for i in '" + "x" * 10_000 + "' %}"
END = "{% endfor %}"


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in t %}" * 4 + END * 4,
        LISTS + TEN_THOUSAND + "{% if a == b %}{% endif %}" + END,
        LISTS + TEN_THOUSAND + "{% if [a, b] | sort %}{% endif %}" + END,
        LISTS + TEN_THOUSAND + "{% if a | wordcount %}{% endif %}" + END,
        LISTS + TEN_THOUSAND + "{% if user[a] %}{% endif %}" + END,
        LISTS + "{% set l = t | list %}" + TEN_THOUSAND + "{% if i in l %}{% endif %}" + END,
        "{% set a = '" + "ab" * 5000 + "' %}{% set b = '" + ("ab" * 4999 + "b") * 9 + "' %}"
        "{% set b = b ~ b ~ b ~ b %}" + TEN_THOUSAND + "{% if a in b %}{% endif %}" + END,
    ],
    ids=["loops", "compared", "sorted", "counted", "key", "list", "text"],
)
def test_a_template_cannot_hold_up_a_run(template: str):
    began = time.process_time()
    with pytest.raises(TemplateFault, match="too m"):
        render(template, {**VALUES, "t": "a" * 400})
    assert time.process_time() - began < 5


def test_an_expression_of_many_parts_is_still_filled_in():
    assert render("{{ " + " ~ ".join(["n"] * 90) + " }}", VALUES) == "3" * 90
    assert render("{{ " + "(" * 25 + "n" + ")" * 25 + " }}", VALUES) == "3"
    written = ", ".join(f"'{n}'" for n in range(2000))
    assert render("{{ [" + written + "] | length }}", VALUES) == "2000"
