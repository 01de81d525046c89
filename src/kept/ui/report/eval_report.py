"""Reports of `kept eval`: holodeck-compatible JSON, Markdown, or JUnit XML.

The JSON uses holodeck's names, so its readers work here. Additional keys are `status`, `repeat`,
`errored`, and the number of failed measurements of a metric. CI servers read the XML.
"""

import json
import platform
import time
from collections.abc import Iterator
from typing import Any, Literal
from xml.sax.saxutils import escape, quoteattr

from kept.core.llm import Exchange, ToolUse
from kept.core.plan import SKILL
from kept.core.rollout import Usage
from kept.core.text import count, one_line, significant
from kept.results.cases import Expected, Measured, Sweep, Tested, called

Format = Literal["json", "markdown", "junit"]
FORMATS: tuple[Format, ...] = ("json", "markdown", "junit")

WORST = 10
"""Maximum number of worst cases listed with input, expected and actual output."""

BETWEEN = "\n---\n"
"""Separator between the turns of a conversation in one text."""


def document(sweep: Sweep) -> dict[str, Any]:
    """Report as a mapping."""
    return {
        "agent_name": sweep.name,
        "agent_config_path": sweep.spec,
        "results": [_result(one, sweep) for one in sweep.cases],
        "summary": _summary(sweep),
        "timestamp": _time(sweep.started),
        "holodeck_version": f"kept {sweep.version}",
        "environment": {
            "python_version": platform.python_version(),
            "platform": platform.platform(),
            "run": sweep.run,
            **{name: str(value) for name, value in sweep.agent.items()},
        },
    }


def written(sweep: Sweep, form: Format) -> str:
    """Report as text."""
    if form == "json":
        return json.dumps(document(sweep), indent=2, ensure_ascii=False) + "\n"
    if form == "markdown":
        return "\n".join(_markdown(sweep)) + "\n"
    # imported at use: junit needs slow imports

    return "\n".join(junit(sweep)) + "\n"


def _summary(sweep: Sweep) -> dict[str, Any]:
    total = len(sweep.cases)
    rate = sweep.pass_rate
    return {
        "total_tests": total,
        "passed": sweep.count("passed"),
        "scored": sweep.count("scored"),
        "failed": sweep.count("failed"),
        "errored": sweep.count("errored"),
        "pass_rate": None if rate is None else round(100 * rate, 4),
        "mean_score": sweep.mean,
        "pass_at": sweep.pass_at,
        "min_score": sweep.min_score,
        "total_duration_ms": round(1000 * sweep.elapsed),
        "metrics_evaluated": {name: mean.asked for name, mean in sweep.means.items()},
        "average_scores": {
            name: mean.score for name, mean in sweep.means.items() if mean.score is not None
        },
        "errored_metrics": {
            name: {"errored": mean.errored, "of": mean.asked, "share": round(mean.share, 4)}
            for name, mean in sweep.means.items()
            if mean.errored
        },
    }


def _result(one: Tested, sweep: Sweep) -> dict[str, Any]:
    exchanges = one.exchanges
    turns = [_turn(one, n, exchange) for n, exchange in enumerate(exchanges)]
    # measurements of a single turn belong to the case; several turns are listed one by one
    several = len(turns) > 1
    uses = [use for exchange in exchanges for use in exchange.uses]
    matched = [expected.matched for expected in one.expected]
    return {
        "test_name": one.case,
        "test_input": BETWEEN.join(exchange.input for exchange in exchanges),
        "processed_files": [],
        "agent_response": exchanges[-1].response if exchanges else None,
        "tool_calls": [use.name for use in uses],
        "tool_invocations": [_use(use) for use in uses],
        "expected_tools": [name for expected in one.expected for name in _names(expected)] or None,
        "tools_matched": all(matched) if matched else None,
        "metric_results": _rolled_up(one) if several else [_metric(m) for m in one.measured],
        "ground_truth": one.truths.get(len(exchanges) - 1),
        "passed": None if one.status == "scored" else one.status == "passed",
        "status": one.status,
        "repeat": one.repeat,
        "execution_time_ms": round(1000 * one.seconds),
        "errors": [one.failure.message] if one.failure else [],
        "timestamp": _time(sweep.started),
        "token_usage": _tokens(one.usage),
        "turns": turns if several else None,
    }


def _turn(one: Tested, n: int, exchange: Exchange) -> dict[str, Any]:
    measured = [m for m in one.measured if m.exchange == n]
    expected = next((e for e in one.expected if e.exchange == n), None)
    tools = None if expected is None else expected.matched
    return {
        "turn_index": n,
        "input": exchange.input,
        "response": exchange.response,
        "ground_truth": one.truths.get(n),
        "expected_tools": _names(expected) if expected else None,
        "tool_calls": [use.name for use in exchange.uses],
        "tool_invocations": [_use(use) for use in exchange.uses],
        "tools_matched": tools,
        "arg_match_details": list(expected.arguments) if expected else None,
        "metric_results": [_metric(m) for m in measured],
        "passed": exchange.answered
        and tools is not False
        and all(m.passed is not False and not m.error for m in measured),
        "execution_time_ms": round(1000 * exchange.seconds),
        "errors": [m.error for m in measured if m.error],
        "skipped": not exchange.answered,
        "grader_details": {m.metric: dict(m.details) for m in measured if m.details} or None,
    }


def _rolled_up(one: Tested) -> list[dict[str, Any]]:
    """Each metric over all turns in which it was measured."""
    names = dict.fromkeys(m.metric for m in one.measured)
    rows: list[dict[str, Any]] = []
    for name in names:
        mine = [m for m in one.measured if m.metric == name]
        scores = [m.score for m in mine if m.score is not None]
        errors = [f"[turn {m.exchange}] {m.error}" for m in mine if m.error]
        passed = [m.passed for m in mine if m.passed is not None]
        # the first row provides name, kind and threshold; the figures are replaced
        row = _metric(mine[0])
        row["score"] = sum(scores) / len(scores) if scores else None
        row["passed"] = all(passed) and not errors if passed else None
        row["error"] = "; ".join(errors) or None
        row["evaluation_time_ms"] = round(1000 * sum(m.seconds for m in mine))
        rows.append(row)
    return rows


def _metric(one: Measured) -> dict[str, Any]:
    return {
        "metric_name": one.metric,
        "kind": one.kind,
        "score": one.score,
        "threshold": one.threshold,
        "passed": one.passed,
        "scale": "0-1",
        "error": one.error or None,
        "blame": one.blame or None,
        "retry_count": one.tries - 1,
        "evaluation_time_ms": round(1000 * one.seconds),
        "model_used": one.model or None,
        "reasoning": one.reasoning or None,
    }


def _use(use: ToolUse) -> dict[str, Any]:
    return {
        "name": use.name,
        "args": dict(use.arguments),
        "result": use.result,
        "bytes": len(use.result.encode("utf-8", "replace")),
        "duration_ms": round(1000 * use.seconds),
        "error": use.result if use.wrong else None,
    }


def _names(expected: Expected) -> list[Any]:
    return list(expected.expected)


def _tokens(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.tokens_in,
        "completion_tokens": usage.tokens_out,
        "total_tokens": usage.tokens_in + usage.tokens_out,
        "cache_creation_tokens": 0,
        "cache_read_tokens": usage.tokens_cached,
        "usd": usage.usd,
    }


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def totals(sweep: Sweep) -> str:
    """Counts in words: `17 of 20 cases pass, 2 fail, 1 errored`."""
    of = len(sweep.cases)
    passes, fails = ("passes", "fails") if of == 1 else ("pass", "fail")
    what = "case" if all(one.repeat == 0 for one in sweep.cases) else "rollout"
    if not sweep.graded:
        words = f"{sweep.count('scored')} of {count(of, what)} scored"
    else:
        words = f"{sweep.count('passed')} of {count(of, what)} {passes}"
    failed, errored = sweep.count("failed"), sweep.count("errored")
    words += f", {failed} {fails}" if failed else ""
    words += f", {errored} errored" if errored else ""
    if sweep.mean is None or sweep.metric_is_pass:
        return words
    return f"{words}, mean {sweep.metric} {significant(sweep.mean)}"


def min_score_words(sweep: Sweep) -> str:
    """`mean score 0.62 is below --min-score 0.8`; empty without `--min-score`."""
    if sweep.min_score is None:
        return ""
    limit = f"--min-score {significant(sweep.min_score, 6)}"
    if sweep.mean is None:
        return f"no case has a score to compare with {limit}"
    shown = significant(sweep.mean)
    for digits in range(3, 18):
        # use as many digits as needed to tell the two apart
        if significant(sweep.mean, digits) != significant(sweep.min_score, digits):
            shown = significant(sweep.mean, digits)
            break
    beyond = "below" if sweep.direction == "maximize" else "above"
    name = "share of cases that pass" if sweep.metric_is_pass else f"mean {sweep.metric}"
    return f"{name} {shown} {'meets' if sweep.meets_min_score else f'is {beyond}'} {limit}"


def _markdown(sweep: Sweep) -> Iterator[str]:
    yield f"# {sweep.name}"
    yield ""
    yield f"{totals(sweep)}. Run `{sweep.run}`, {_time(sweep.started)}, {sweep.elapsed:.1f} s."
    if required := min_score_words(sweep):
        yield ""
        yield f"**{required}**"
    yield ""
    yield "| metric | mean | cases | could not be measured |"
    yield "|---|---|---|---|"
    for name, mean in sweep.means.items():
        score = "" if mean.score is None else significant(mean.score, 4)
        lost = f"{mean.errored} of {mean.asked}" if mean.errored else ""
        yield f"| {_cell(name)} | {score} | {mean.cases} | {lost} |"
    yield ""
    yield "| case | status | " + " | ".join(map(_cell, sweep.means)) + " | why |"
    yield "|---|---|" + "---|" * len(sweep.means) + "---|"
    for one in sweep.cases:
        scores = (one.metrics.get(name) for name in sweep.means)
        cells = ["" if score is None else significant(score, 4) for score in scores]
        yield "| " + " | ".join([_cell(called(one)), one.status, *cells, _cell(one.why)]) + " |"
    if sweep.described:
        yield from _worst(sweep)
    for one in sweep.cases:
        if one.status not in ("passed", "scored"):
            yield from _failed(one)


def _worst(sweep: Sweep) -> Iterator[str]:
    """Table of the worst cases with input, expected and actual output."""
    yield ""
    yield "## Worst cases"
    yield ""
    yield f"| case | input | expected | got | {_cell(sweep.metric)} |"
    yield "|---|---|---|---|---|"
    for one in sweep.worst_first()[:WORST]:
        value = one.metrics.get(sweep.metric)
        score = "" if value is None else significant(value)
        cells = (called(one), one.input, one.truth, one.got, score)
        yield "| " + " | ".join(map(_cell, cells)) + " |"


def _failed(one: Tested) -> Iterator[str]:
    yield ""
    yield f"## {called(one)}: {one.status}"
    for n, exchange in enumerate(one.exchanges):
        yield ""
        yield from _quoted("input", exchange.input)
        for use in exchange.uses:
            arguments = json.dumps(dict(use.arguments), ensure_ascii=False)
            yield from _quoted(f"used {use.name}", f"{arguments}\n{use.result}")
        yield from _quoted("answer", exchange.response if exchange.answered else "(none)")
        if n in one.truths:
            yield from _quoted("expected", one.truths[n])
    yield ""
    for text in one.findings or ((one.why,) if one.why else ()):
        yield f"* {one_line(text, 500)}"


def _quoted(name: str, text: str) -> Iterator[str]:
    yield f"**{name}**"
    yield ""
    yield from (f"> {line}" for line in text.splitlines()[:40] or [""])
    yield ""


def _cell(text: str) -> str:
    return one_line(text, 160).replace("|", "\\|")


FAILED_IS_BAD = {SKILL: False}
"""True if failed cases are an error, by measuring recipe; a skill usually fails some cases."""


def exit_code(sweep: Sweep) -> int:
    """Exit code: 0 if all pass, 1 if some fail, 3 if some did not run, 4 if some have no score.

    With `--min-score` the mean decides between 0 and 1, and not each case. A skill that fails some
    cases still gets 0: measuring it was the purpose.
    """
    if sweep.count("errored") > sweep.unscored or len(sweep.cases) < sweep.asked:
        return 3
    if sweep.unscored:
        return 4
    if sweep.meets_min_score is not None:
        return 0 if sweep.meets_min_score else 1
    return 1 if sweep.count("failed") and FAILED_IS_BAD.get(sweep.of, True) else 0


def junit(sweep: Sweep) -> Iterator[str]:
    """Lines of the report as JUnit XML.

    With `--min-score` an additional test case shows if the mean meets it. Cases below `pass_at`
    are then no failures, so that the report agrees with the exit code.
    """
    by_mean = sweep.meets_min_score is not None
    failures = int(not sweep.meets_min_score) if by_mean else sweep.count("failed")
    tests, errors = len(sweep.cases) + by_mean, sweep.count("errored")
    numbers = f'tests="{tests}" failures="{failures}" errors="{errors}"'
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield f"<testsuites {numbers}>"
    name = quoteattr(_plain(sweep.name))
    yield f'<testsuite name={name} {numbers} time="{sweep.elapsed:.3f}">'
    if by_mean:
        yield from _mean_testcase(sweep)
    for one in sweep.cases:
        yield from _testcase(sweep, one, fails=not by_mean)
    yield "</testsuite>"
    yield "</testsuites>"


def _mean_testcase(sweep: Sweep) -> Iterator[str]:
    names = f"name={quoteattr(f'mean {sweep.metric}')} classname={quoteattr(_plain(sweep.name))}"
    yield f"<testcase {names}>"
    if not sweep.meets_min_score:
        words = quoteattr(_plain(min_score_words(sweep)))
        worst = "\n".join(_worst_line(sweep, one) for one in sweep.worst_first()[:WORST])
        yield f"<failure message={words}>{escape(_plain(worst))}</failure>"
    yield "</testcase>"


def _worst_line(sweep: Sweep, one: Tested) -> str:
    value = one.metrics.get(sweep.metric)
    score = "failed" if value is None else significant(value)
    expected = f", expected {one_line(one.truth, 200)}" if one.truth else ""
    got = f", got {one_line(one.got, 200)}" if one.got else ""
    return f"{called(one)}: {score}{expected}{got}"


def _testcase(sweep: Sweep, one: Tested, *, fails: bool) -> Iterator[str]:
    names = f"name={quoteattr(_plain(called(one)))} classname={quoteattr(_plain(sweep.name))}"
    yield f'<testcase {names} time="{one.seconds:.3f}">'
    if one.status == "errored" or (one.status == "failed" and fails):
        tag = "failure" if one.status == "failed" else "error"
        why = quoteattr(_plain(one_line(one.why or _below(sweep, one), 300)))
        yield f"<{tag} message={why}>{escape(_plain(_story(one)))}</{tag}>"
    yield "</testcase>"


def _below(sweep: Sweep, one: Tested) -> str:
    """Reason for a failed case without findings: its score against `pass_at`."""
    if sweep.pass_at is None or sweep.metric not in one.metrics:
        return ""
    return f"{sweep.metric} {significant(one.metrics[sweep.metric])}, pass_at {sweep.pass_at:g}"


def _story(one: Tested) -> str:
    lines: list[str] = []
    for exchange in one.exchanges:
        lines += [f"> {exchange.input}", f"< {exchange.response}"]
    if one.described and one.truth:
        lines.append(f"expected: {one.truth}")
    return "\n".join([*lines, *one.findings])


def _plain(text: str) -> str:
    """Text without the characters that XML forbids."""
    return "".join(c for c in text if c in "\t\n" or (ord(c) >= 32 and c not in "\ufffe\uffff"))
