"""Display of each kind of run: one entry each, and a template if needed.

A new recipe adds one entry: its word, its result in the list, and the body of its page. A recipe
without an entry is shown as a run with steps.
"""

from kept.core.plan import (
    AGENT_CONFIG,
    AGENT_RUN,
    COMPARE,
    EVALUATE,
    FUNCTION,
    REFINE,
    SKILL,
    SUITE,
    TASK,
)
from kept.core.text import count
from kept.results.cases import Sweep, sweep_of
from kept.results.compare import comparison_of
from kept.store.overview import Glance
from kept.store.reader import Run
from kept.ui.report.compare import interval, sentences, title
from kept.ui.web import agent_pages, training_pages
from kept.ui.web.run_page import Asked, Kind, View
from kept.ui.web.templates import figure

PAGE = 100
_STATUSES = ("all", "failed", "errored", "passed", "scored")


def _sweep_body(run: Run, told: Glance, asked: Asked) -> View:
    sweep = sweep_of(run, traces=False)
    assert sweep is not None, "the recipe says that it measures"
    cases = [one for one in sweep.cases if asked.show in ("all", one.status)]
    pages = max(1, -(-len(cases) // PAGE))
    page = min(max(1, asked.page), pages)
    return {
        "sweep": sweep,
        "cases": cases[(page - 1) * PAGE : page * PAGE],
        "found": len(cases),
        "page": page,
        "pages": pages,
        "show": asked.show,
        "filters": _STATUSES,
    }


def sweep_words(sweep: Sweep) -> str:
    """`17 of 20 cases pass`, or the mean if nothing can pass or fail."""
    if sweep.graded:
        done = sweep.count("passed") + sweep.count("failed")
        words = f"{sweep.count('passed')} of {count(done, 'case')} pass"
        errored = sweep.count("errored")
        return f"{words}, {errored} could not be told" if errored else words
    mean = sweep.means.get(sweep.metric)
    score = figure(mean.score) if mean else "no score"
    return f"{sweep.metric} {score} on {count(len(sweep.cases), 'case')}"


def _sweep_headline(run: Run, told: Glance) -> str:
    sweep = sweep_of(run, traces=False)
    return sweep_words(sweep) if sweep is not None and sweep.cases else "no case has run yet"


def _comparison_body(run: Run, told: Glance, asked: Asked) -> View:
    found = comparison_of(run.state, {row.step: row.reason for row in told.rows}, run.folder)
    assert found is not None, "the recipe says that it compares"
    return {
        "comparison": found,
        "sentences": list(sentences(found, told.spend)),
        "intervals": {line.label: interval(line) for line in found.lines},
    }


def _comparison_headline(run: Run, told: Glance) -> str:
    found = comparison_of(run.state, folder=run.folder)
    return title(found) if found is not None else ""


KINDS = {
    TASK: Kind("loop"),
    FUNCTION: Kind("function"),
    AGENT_CONFIG: Kind("tuning"),
    SKILL: Kind("training", "run_training.html", training_pages.body),
    SUITE: Kind("prompts", "run_suite.html", agent_pages.suite_body),
    REFINE: Kind(
        "refinement",
        "run_refine.html",
        agent_pages.refinement_body,
        refinable=True,
        step=agent_pages.step,
    ),
    AGENT_RUN: Kind(
        "agent",
        "run_agent.html",
        agent_pages.agent_body,
        agent_pages.result,
        agent_pages.headline,
        steps=False,
        refinable=True,
    ),
    COMPARE: Kind(
        "comparison",
        "run_comparison.html",
        _comparison_body,
        lambda row, _: f"{row.metric} {figure(row.seed_value)}",
        _comparison_headline,
    ),
    EVALUATE: Kind(
        "test",
        "run_sweep.html",
        _sweep_body,
        lambda row, _: f"{row.metric} {figure(row.best_value)}",
        _sweep_headline,
        steps=False,
    ),
}


def kind_of(recipe: str) -> Kind:
    """Display of a recipe's runs."""
    return KINDS.get(recipe) or Kind(recipe or "unknown")
