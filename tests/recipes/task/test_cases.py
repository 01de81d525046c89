import json
from pathlib import Path

from kept.core.case import Case, Cases
from kept.recipes.task.cases import overlap_warnings, read_cases
from kept.spec.source import Source
from kept.spec.yaml import Document


def cases_of(folder: Path, name: str, text: str, split: str = "1:1:0") -> Cases:
    (folder / name).write_text(text, encoding="utf-8")
    said = {"cases": {"file": name, "split": split}}
    source = Source(folder / "task.yaml", Document(said))
    cases = read_cases(source)
    source.check()
    assert cases is not None
    return cases


def test_a_line_is_a_case_and_an_id_is_optional(tmp_path: Path):
    text = '{"id": "x", "q": 1}\n\n"just a text"\r\n{"id": 7}\n[1]\n'
    cases = cases_of(tmp_path, "c.jsonl", text)
    assert dict(cases.by_id) == {
        "x": Case("x", {"id": "x", "q": 1}),
        "0001": Case("0001", "just a text"),
        "7": Case("7", {"id": 7}),
        "0003": Case("0003", [1]),
    }
    assert (len(cases.train), len(cases.holdout), len(cases.test)) == (2, 2, 0)


def test_a_json_list_is_cases_too(tmp_path: Path):
    cases = cases_of(tmp_path, "c.json", '\ufeff[\n{"id": "a"},\n{"id": "b"}\n]')
    assert set(cases.by_id) == {"a", "b"}


def test_line_separators_of_other_scripts_do_not_end_a_line(tmp_path: Path):
    cases = cases_of(tmp_path, "c.jsonl", '"one\u2028two\u0085"\n"three"\n')
    assert cases.by_id["0000"].data == "one\u2028two\u0085"


def test_the_split_depends_on_ids_and_seed_alone(tmp_path: Path):
    rows = [json.dumps({"id": f"c{n}", "x": n}) for n in range(20)]
    one = cases_of(tmp_path, "a.jsonl", "\n".join(rows), "3:5:2")
    two = cases_of(tmp_path, "b.jsonl", "\n".join(reversed(rows)), "3:5:2")
    assert {c.id for c in one.holdout} == {c.id for c in two.holdout}
    assert (len(one.train), len(one.holdout), len(one.test)) == (6, 10, 4)


def test_copies_across_splits_are_warned_of_although_their_ids_differ():
    said = "please cancel the order that I placed yesterday in the evening by mistake"
    cases = Cases(
        train=(Case("a", {"id": "a", "q": said}), Case("b", {"id": "b", "q": "something else"})),
        holdout=(Case("c", {"id": "c", "q": said}), Case("d", {"id": "d", "q": f"{said} today"})),
    )
    assert overlap_warnings(cases) == (
        "2 pairs of cases are the same, or nearly, across splits: `a` (train) and `c` (holdout); "
        "`a` (train) and `d` (holdout), 92% alike",
    )
    one = Cases(cases.train, cases.holdout[:1])
    assert overlap_warnings(one) == ("case `a` (train) and case `c` (holdout) are the same",)
    assert overlap_warnings(Cases(cases.train[1:], cases.holdout)) == ()


def test_of_many_copies_the_first_are_named_and_the_rest_counted():
    train = tuple(Case(f"t{n}", f"the same words of case number {n}") for n in range(15))
    holdout = tuple(Case(f"h{n}", f"the same words of case number {n}") for n in range(15))
    (told,) = overlap_warnings(Cases(train, holdout))
    assert told == (
        "15 pairs of cases are the same across splits: `t0` (train) and `h0` (holdout); "
        "`t1` (train) and `h1` (holdout); `t2` (train) and `h2` (holdout); and 12 more"
    )
