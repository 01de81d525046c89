"""Prompts that a model proposes, for a model that runs here: what is promoted is truly better.

The proposals are scripted, one that helps, one that does nothing and one that harms. What answers
is real, and what is promoted is measured on sealed cases by asking that model itself.
"""

import asyncio
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import cast

import pytest

from kept.core.artifact import Candidate
from kept.core.llm import Message, ModelReply, ModelRequest
from kept.core.plan import Plan
from kept.core.ports import Gate
from kept.models.local.model import LocalModel
from kept.models.weights import KNOWN
from kept.recipes.task.compile import compile_task
from kept.run import start
from kept.store.home import Home
from kept.store.reader import Run
from kept.testing import AcceptAll, RejectAll
from kept.testing.server import ModelServer, Seen
from kept.ui.demo import REVIEWS

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.usefixtures("fresh_replies")]

CASES = 36
SEED = (REVIEWS / "prompt.md").read_text(encoding="utf-8")
USELESS, GOOD, HARMFUL = POOL = tuple(
    (REVIEWS / "variants" / name / "prompt.md").read_text(encoding="utf-8")
    for name in ("1-polite", "4-definitions", "2-cheerful")
)
"""The harmful one last: a gate that keeps everything ends with it."""
MARGIN = 0.15
"""Less than half of what the good one is worth."""


@pytest.fixture(scope="module")
def fresh_replies(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Replies of this module alone, so that no run before it answers, and none is made twice."""
    folder = tmp_path_factory.mktemp("cache")
    (folder / "models").symlink_to(smollm2.parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KEPT_CACHE", str(folder))
        yield


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(edited) as made:
        yield made


def edited(seen: Seen) -> str:
    """The next prompt of the pool, as an edit of the one that is shown."""
    shown = seen.lines[1].text.partition("# The file `prompt.md` as it is now")[2]
    now = next(text for text in (SEED, *POOL) if text.strip() in shown.partition("</file-")[0])
    new = POOL[seen.number]
    edit = {"op": "replace", "path": "prompt.md", "target": now.strip(), "text": new.strip()}
    return json.dumps({"why": "another prompt", "cases": [], "edits": [edit]})


def plan_of(folder: Path, server: ModelServer, gate: str) -> Plan:
    """The demo's task on a part of its reviews, its prompts written by the server."""
    task = Path(shutil.copytree(REVIEWS, folder / "reviews"))
    lines = (task / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    (task / "cases.jsonl").write_text("\n".join(lines[:CASES]), encoding="utf-8")
    optimizer = f"{{provider: openai_compatible, model: m, base_url: '{server.v1}', cache: false}}"
    settings = (
        f"models={{optimizer: {optimizer}}}",
        "runner.model={provider: local, model: smollm2, temperature: 0, cache: true}",
        "proposers=[{kind: edit, cases: 2, traces: 1}]",
        "cases.split='3:12:5'",
        f"gate={gate}",
        *(() if gate == "race" else ("race=null",)),
        f"budget={{max_iterations: {len(POOL)}}}",
    )
    return compile_task(task / "task.yaml", settings).plan


@cache
def share_right(prompt: str, cases: tuple[tuple[str, str], ...]) -> float:
    """How often the model gives the right label, asked by nothing that a run is made of."""
    model = LocalModel("local/smollm2", KNOWN["smollm2"].path)
    schema = json.loads((REVIEWS / "schema.json").read_text(encoding="utf-8"))

    async def label(review: str) -> str:
        asked = (Message("system", prompt.strip()), Message("user", review))
        request = ModelRequest(asked, schema=schema, temperature=0.0, max_tokens=16)
        reply = await model.complete(request)
        assert isinstance(reply, ModelReply), reply
        return json.loads(reply.text)["label"]

    async def labels() -> list[str]:
        return await asyncio.gather(*(label(review) for review, _ in cases))

    said = asyncio.run(labels())
    return sum(one == right for one, (_, right) in zip(said, cases, strict=True)) / len(cases)


def check(best: Candidate, plan: Plan) -> None:
    """What a user is promised, on cases that nothing of the run has seen."""
    rows = [cast("dict[str, str]", case.data) for case in plan.cases.test]
    sealed = tuple((row["review"], row["label"]) for row in rows)
    before, after = (share_right(text, sealed) for text in (SEED, best["prompt.md"]))
    assert after >= before + MARGIN, f"{before:g} → {after:g} is no real gain"


def test_what_is_promoted_on_a_real_model_is_better_on_the_sealed_test(
    tmp_path: Path, server: ModelServer
):
    plan = plan_of(tmp_path, server, "race")
    folder, state = asyncio.run(start(plan, Home(tmp_path / "home")))
    with Run(folder) as run:
        check(run.best, plan)
    assert (folder / "best" / "prompt.md").read_text(encoding="utf-8") == GOOD
    assert len(server.answered) == len(POOL), "all of the pool was proposed"
    (claim,) = (step.verdict for step in state.history if step.verdict.code == "claim")
    assert claim.numbers["gain"] >= MARGIN, claim.reason


@pytest.mark.nightly
@pytest.mark.parametrize("gate", [AcceptAll(), RejectAll()], ids=lambda gate: gate.name)
def test_the_check_on_the_sealed_test_fails_for_a_gate_that_does_not_look(
    gate: Gate, tmp_path: Path, server: ModelServer
):
    plan = replace(plan_of(tmp_path, server, "strict"), gate=gate)
    folder, _ = asyncio.run(start(plan, Home(tmp_path / "home")))
    assert len(server.answered) == len(POOL), "it was shown what the race was shown"
    with Run(folder) as run, pytest.raises(AssertionError, match="no real gain"):
        check(run.best, plan)
