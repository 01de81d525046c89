"""Cases for tuning an agent: train, holdout and sealed test cases.

They come from separate files, or the agent's own cases are split. No case is in two splits, and
every split can be measured by metrics of the loss.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from kept.core.case import SPLITS, Cases, Split, bare, case_text, split_cases
from kept.core.text import count
from kept.evaluators.metrics.config import keyed, read_metrics
from kept.recipes.agent_config.cases import case_of
from kept.recipes.agent_config.spec.case_files import read_case_file, split_name
from kept.recipes.agent_config.spec.cases import TestCaseSpec, metrics_of
from kept.recipes.agent_config.spec.optimizer import BLOCK, SPLIT, OptimizerSpec
from kept.recipes.agent_config.spec.read import ReadAgent
from kept.recipes.task.cases import overlap_warnings
from kept.spec.validate import shares_of

Splits = Mapping[Split, Sequence[TestCaseSpec]]
NAMED = 3
"""Number of cases that a message names."""


def splits_of(
    read: ReadAgent, spec: OptimizerSpec
) -> tuple[Cases, tuple[TestCaseSpec, ...]] | None:
    """Cases by split, and the specs of all; None, and reports, if they are not available."""
    before = len(read.source.problems)
    _check_keys(read, spec)
    if len(read.source.problems) > before:
        return None
    if _own(spec):
        splits: Splits = _shared_out(read, spec)
    else:
        splits = {
            "train": _file(read, spec.train_cases_file, "train"),
            "holdout": _file(read, spec.holdout_cases_file, "holdout"),
            "test": _file(read, spec.test_cases_file, "test"),
        }
    if len(read.source.problems) > before:
        return None  # if a file cannot be read, further checks would mislead
    _check_sizes(read, spec, splits)
    _check_apart(read, spec, splits)
    _check_metrics(read, spec, splits)
    if len(read.source.problems) > before:
        return None
    cases = Cases(*(tuple(map(case_of, splits[name])) for name in SPLITS))
    return cases, tuple(case for name in SPLITS for case in splits[name])


def split_warnings(cases: Cases) -> tuple[str, ...]:
    """Warnings about cases of different splits that are nearly the same under other names."""
    return overlap_warnings(cases, "name")


def _own(spec: OptimizerSpec) -> bool:
    """True if the agent's own cases are split."""
    return spec.train_cases_file is None and spec.holdout_cases_file is None


def _check_keys(read: ReadAgent, spec: OptimizerSpec) -> None:
    """Report keys that do not go together."""
    report = read.source.report
    files = {"train": spec.train_cases_file, "holdout": spec.holdout_cases_file}
    given = [name for name, file in files.items() if file is not None]
    if given == ["train"] and spec.holdout_eval_policy != "skip":
        message = "there is no `holdout_cases_file`: nothing would tell a gain from overfitting"
        hint = (
            "give one, or `split` instead of files; or set `holdout_eval_policy: skip`, "
            "and trust train alone"
        )
        report((*BLOCK, "train_cases_file"), message, hint)
    if given == ["holdout"]:
        message = "there is no `train_cases_file`: nothing would be left to learn from"
        report((*BLOCK, "holdout_cases_file"), message, "give one, or `split` instead of files")
    if given and spec.split is not None:
        named = " and ".join(f"`{name}_cases_file`" for name in given)
        report((*BLOCK, "split"), f"cases come from {named}, and there is nothing to split")
    if not given and spec.split is not None:
        _check_split(read, spec, spec.split)


def _check_split(read: ReadAgent, spec: OptimizerSpec, split: str) -> None:
    train, holdout, test = shares_of(split)
    loc = (*BLOCK, "split")
    if not train or not holdout:
        lacking = "train case to learn from" if not train else "holdout case to decide by"
        read.source.report(loc, f"`{split}` leaves no {lacking}")
    if test and spec.test_cases_file is not None:
        message = f"`{split}` has test cases, and `test_cases_file` has others"
        hint = f"write {train}:{holdout}:0, or leave the file out"
        read.source.report(loc, message, hint)


def _file(read: ReadAgent, name: str | None, split: Split) -> tuple[TestCaseSpec, ...]:
    if name is None:
        return ()
    if split in read.splits:
        return read.splits[split]
    loc, call = (*BLOCK, f"{split}_cases_file"), split_name(name, split)
    cases, _ = read_case_file(read.source, name, read.place.config, loc, call=call)
    return cases


def _shared_out(read: ReadAgent, spec: OptimizerSpec) -> Splits:
    ratio = list(shares_of(spec.split or SPLIT))
    if not read.cases:
        hint = "give `test_cases`, or `train_cases_file` and `holdout_cases_file`"
        read.source.report(BLOCK, "there are no cases: the agent has none to be shared out", hint)
        return {}
    test = _file(read, spec.test_cases_file, "test")
    if spec.test_cases_file is not None:
        ratio[2] = 0
    by_name = {case.name: case for case in read.cases}
    split = split_cases([case_of(case) for case in read.cases], ratio, spec.seed)
    parts: dict[Split, tuple[TestCaseSpec, ...]] = {
        name: tuple(by_name[case.id] for case in split.of(name)) for name in SPLITS
    }
    return {**parts, "test": test or parts["test"]}


def _check_sizes(read: ReadAgent, spec: OptimizerSpec, splits: Splits) -> None:
    if not splits["train"]:
        key = "split" if _own(spec) else "train_cases_file"
        message = f"there is no train case of {count(len(read.cases), 'case')} to learn from"
        read.source.report((*BLOCK, key), message, "add cases")
    number = len(splits["holdout"])
    if spec.holdout_eval_policy == "skip" or number >= spec.min_holdout_cases:
        return
    key = "split" if _own(spec) else "holdout_cases_file"
    of = f" of {count(len(read.cases), 'case')}" if _own(spec) else ""
    verb = "is" if number == 1 else "are"
    few = f"there {verb} {count(number, 'holdout case')}{of}"
    message = f"{few}, and {spec.min_holdout_cases} are needed to tell a gain from noise"
    hint = "add cases, or lower `min_holdout_cases` if you must"
    if _own(spec) and (more := _more_cases(len(read.cases), spec)):
        hint = f"add {count(more, 'case')}, or lower `min_holdout_cases` if you must"
    read.source.report((*BLOCK, key), message, hint)


def _more_cases(there: int, spec: OptimizerSpec) -> int:
    """Number of cases to add until the split has enough holdout cases."""
    ratio = list(shares_of(spec.split or SPLIT))
    if spec.test_cases_file is not None:
        ratio[2] = 0
    if not ratio[1]:
        return 0  # without a holdout share no number of cases is enough
    # ceiling division
    enough = -(-spec.min_holdout_cases * sum(ratio) // ratio[1])
    return max(0, enough - there)


def _check_apart(read: ReadAgent, spec: OptimizerSpec, splits: Splits) -> None:
    """Check that no case is in two splits, by name or, for cases from files, by content."""
    names: dict[str, Split] = {}
    texts: dict[str, tuple[Split, str]] = {}
    for split in SPLITS:
        twice: dict[Split, list[str]] = {}
        copied: dict[Split, list[str]] = {}
        # copies among the agent's own cases are no error: `split_warnings` warns of them
        sealed = split == "test" and spec.test_cases_file is not None
        rows = [(case.name or "", case_text(bare(case_of(case), "name"))) for case in splits[split]]
        for name, text in rows:
            if name in names:
                twice.setdefault(names[name], []).append(f"`{name}`")
            elif text in texts and (not _own(spec) or sealed):
                other, first = texts[text]
                copied.setdefault(other, []).append(f"`{name}` (there `{first}`)")
        names.update((name, split) for name, _ in rows)
        texts.update((text, (split, name)) for name, text in rows)
        loc = (*BLOCK, f"{split}_cases_file")
        for other, found in twice.items():
            told = f"{_some(found)} stand{_s(found)} in {other} too: no case may decide on itself"
            read.source.report(loc, told, "give each case to one of them")
        for other, found in copied.items():
            told = f"{_some(found)} say{_s(found)} the same as a case of {other}"
            read.source.report(loc, told, "give each case to one of them")


def _s(names: Sequence[str]) -> str:
    return "s" if len(names) == 1 else ""


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _check_metrics(read: ReadAgent, spec: OptimizerSpec, splits: Splits) -> None:
    """Check that metrics of the loss are measured: all on train, some in every other split."""
    measured = {
        name: dict.fromkeys(key for case in splits[name] for key in _keys(read, case))
        for name in SPLITS
        if splits[name]
    }
    # names of metrics that at least one case is measured by
    known = [*dict.fromkeys(key for keys in measured.values() for key in keys)]
    weighed = [key for key, weight in spec.loss.items() if weight]
    for key in spec.loss:
        loc = (*BLOCK, "loss", key)
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are {_quoted(known)}"
            read.source.report(loc, f"no case is measured by a metric `{key}`", hint)
        elif key in weighed and key not in measured.get("train", {}):
            message = f"`{key}` is measured on no train case, and so nothing can be learnt of it"
            read.source.report(loc, message)
    for name in ("holdout", "test"):
        keys = measured.get(name)
        if keys is not None and not set(keys) & set(weighed) & set(known):
            message = f"no {name} case is measured by what the loss weighs, {_quoted(weighed)}"
            read.source.report((*BLOCK, "loss"), message)


def _keys(read: ReadAgent, case: TestCaseSpec) -> Iterator[str]:
    for turn in case.exchanges:
        metrics = metrics_of(read.agent.spec.metrics, case, turn)
        rows = read_metrics(metric.model_dump() for metric in metrics)
        yield from (key for key, _ in keyed(rows))


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
