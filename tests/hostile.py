"""Generated hostile texts for every parser: `python -m tests.hostile SEED TEXTS SIZE`.

Runs in a process of its own, because what it looks for would end it. Prints what was wrong, one
line each: an exception that is no refusal, or a call that took too long. A call that never ends is
shown by its traceback.
"""

import faulthandler
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from kept.adapters.reflection import text_in
from kept.core.artifact import uncommented
from kept.core.parsing import (
    compile_pattern,
    parse_json,
    parse_json_at,
    parse_python,
    parse_toml,
)
from kept.core.text import sections, words_of
from kept.errors import KeptError
from kept.evaluators.environments.chat_student import answer_in
from kept.evaluators.metrics.deterministic import NoValue, value_at
from kept.evaluators.runners.model import is_chat
from kept.evaluators.scorers.assertions.deterministic import compared
from kept.evaluators.scorers.assertions.spec import Assertion
from kept.evaluators.scorers.command import printed_objects
from kept.evaluators.scorers.rules import Matches, Parses
from kept.evaluators.templates.filters import TemplateFault
from kept.evaluators.templates.render import names_of, render
from kept.evaluators.tools.arithmetic import NoNumber, worked_out
from kept.evaluators.tools.documents import Unreadable, kind_of, parse_document
from kept.models.structured_output import Unfit, fit
from kept.orchestrator.checks.chain import Pure, chain
from kept.proposers.text_units import body_of, units
from kept.recipes.importers.cases import read_rows
from kept.sandbox.coding_agents.result import events_of
from kept.sandbox.json_schema import first_error
from kept.spec.locate.tree import read_value, with_texts
from kept.spec.source import source_of
from kept.spec.yaml import YamlFault, read_yaml
from tests.orchestrator.submissions import scored, submission

MOST_SECONDS = 10.0
"""Of CPU for one call: what is linear takes hundredths of one."""

OPENED = {
    "[": "]",
    "{": "}",
    "(": ")",
    "{a: ": "}",
    '{"a":': "}",
    '{"a": [': "]}",
    "<a>": "</a>",
    "{% if a %}": "{% endif %}",
    "{{ (": ") }}",
    "<think>": "</think>",
    "\\begin{a}": "\\end{a}",
    "(?:": ")*",
}
ALONE = (
    *("- ", "? ", "a:\n ", "&a ", "*a ", "<<: *a\n", "!!int x\n", "!!bool ", "--- ", "%YAML 1.1\n"),
    *('"', "'", "`", "```\n", "~~~", "/*", "//", "<!--", "<![CDATA[", "<?", "</", "<a ", "<!a"),
    *("{{", "{%", "{#", "{{ a|", "{{ a.", "\\", "%", "#", "$", "\n", " ", "\t", "\r\n", ",", ":"),
    *("|", "=", "a=", "a.", "[a.", "1", "0x1", "1_", "1e", "1.", "-", "+", "1:", "**", "2**", "~"),
    *("é", "\u2028", "\x85", "\ufeff", "\0", "\x7f", "<answer>", "<new-text>\n", "TODO ", "[1] "),
    *("](#a)", "# h\n", "![", "](", "a,b\n", '"a",', "true ", "null,", "x y ", "A. ", "a\n\n", "*"),
    *('{"a":"b"', '"a" "b" ', '["a" ', "{a:", "[[a]]\n", "<a b='", "&amp", "if a: pass\n", "f'{"),
)
HEADS = ("", "a: ", '{"a": ', '["', '{"k": "', "a = ", "[", "<p>", "%YAML 1.1\n---\n", "{{ ", "x\n")
SUFFIXES = (
    *("yaml", "json", "jsonl", "csv", "md", "tex", "html", "js", "css", "go", "c", "py", "txt"),
)


def texts(seed: int, number: int, size: int) -> Iterator[str]:
    """So many texts of about this size, each made of few pieces many times over."""
    chance = random.Random(seed)
    pairs = [*OPENED.items(), *((opening, "") for opening in (*OPENED, *ALONE))]
    pieces = (*OPENED, *OPENED.values(), *ALONE)
    for n in range(number):
        head = chance.choice(HEADS)
        if n % 2:
            opening, closing = chance.choice(pairs)
            many = size // len(opening + closing)
            yield head + opening * many + closing * many
            continue
        unit = "".join(chance.choices(pieces, k=chance.randint(2, 4)))
        made = head + unit * (size // len(unit))
        if chance.random() < 0.3:
            at = chance.randrange(len(made))
            made = made[:at] + "".join(chance.choices(pieces, k=3)) + made[at:]
        yield made


def _python(text: str) -> None:
    with suppress(SyntaxError):
        parse_python(text)


def _yaml(text: str) -> None:
    source_of(Path("task.yaml"), text)


def _checks(text: str) -> None:
    files = {f"a.{suffix}": text for suffix in SUFFIXES}
    given = submission(files=files, critiques=scored(0.9))
    for check in chain():
        if isinstance(check, Pure):
            # one file at a time, as a smaller text is judged in this process
            for name, data in given.files.items():
                check.judge(submission(files={name: data}, critiques=scored(0.9)))


def _rule(text: str) -> None:
    for form in ("json", "yaml", "toml"):
        check = Parses(form)
        if check.quick(text):
            check.measure(text, "")
    for pattern in ("TODO", r"^Answer: \d+$", r"\s+x"):
        check = Matches(pattern)
        if check.quick(text):
            check.measure(text, "")


def _asserted(text: str) -> None:
    schema = {"type": "object", "required": ["a"]}
    for kind in ("is-json", "contains-json", "equals"):
        compared(Assertion(kind, schema), text, {})


def _rows(folder: Path, text: str) -> None:
    for suffix in ("csv", "json", "jsonl"):
        path = folder / f"rows.{suffix}"
        path.write_text(text, encoding="utf-8", newline="")
        try:
            read_rows(path)
        except KeptError:
            continue


def _page(folder: Path, text: str) -> None:
    # its parser takes the square of the size, and is given a process of its own
    path = folder / "page.html"
    path.write_text(text[:5000], encoding="utf-8", newline="")
    parse_document(path, kind_of(path))


def _schema(text: str) -> None:
    first_error(parse_json(text), {"type": "object", "required": [text[:100]]})


def _value(suffix: str, text: str) -> None:
    read_value(f"x.{suffix}", text, "a")
    with_texts(f"x.{suffix}", text, str.upper)


def targets(folder: Path) -> Mapping[str, tuple[Callable[[str], object], type[Exception] | None]]:
    """What reads foreign text, and how it refuses one."""
    return {
        "parse_json": (parse_json, ValueError),
        "parse_json_at": (lambda text: parse_json_at(text, 0), ValueError),
        "parse_toml": (parse_toml, ValueError),
        "parse_python": (_python, ValueError),
        "compile_pattern": (compile_pattern, ValueError),
        "read_yaml": (read_yaml, YamlFault),
        "source_of": (_yaml, KeptError),
        **{f"x.{one}": (partial(_value, one), None) for one in ("yaml", "json", "toml", "ini")},
        "checks": (_checks, None),
        "fit": (lambda text: fit(text, {"type": "object"}), Unfit),
        "printed_objects": (printed_objects, ValueError),
        "render": (lambda text: render(text, {"a": [1, "x"]}), TemplateFault),
        "names_of": (names_of, TemplateFault),
        "rules": (_rule, None),
        "assertions": (_asserted, None),
        "value_at": (lambda text: value_at(text, "a"), NoValue),
        "events_of": (lambda text: list(events_of(text)), None),
        "is_chat": (is_chat, None),
        "body_of": (body_of, None),
        "units": (lambda text: list(units("a.md", text)), None),
        "sections": (sections, None),
        "words_of": (words_of, None),
        "uncommented": (uncommented, None),
        "answer_in": (answer_in, None),
        "text_in": (text_in, None),
        "rows": (partial(_rows, folder), None),
        "page": (partial(_page, folder), Unreadable),
        "schema": (_schema, ValueError),
        "worked_out": (worked_out, NoNumber),
    }


def main(seed: int, number: int, size: int) -> int:
    """Hold every text against every parser; the number of those that went wrong."""
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        readers = targets(Path(folder))
        for text in texts(seed, number, size):
            for name, (read, refusal) in readers.items():
                if said := _call(read, text, refusal):
                    wrong += 1
                    sys.stdout.write(f"{name}: {text[:60]!r} … {said}\n")
                    sys.stdout.flush()
    return wrong


def _call(read: Callable[[str], object], text: str, refusal: type[Exception] | None) -> str:
    faulthandler.dump_traceback_later(6 * MOST_SECONDS, exit=True)
    began = time.process_time()
    try:
        read(text)
    except Exception as error:  # noqa: BLE001 # which it is, is what is looked for
        if refusal is None or not isinstance(error, refusal) or not str(error):
            return f"{type(error).__name__}: {error}"[:300]
    finally:
        faulthandler.cancel_dump_traceback_later()
    took = time.process_time() - began
    return f"took {took:.1f} s" if took > MOST_SECONDS else ""


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])) > 0)
