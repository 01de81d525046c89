"""An agent CLI as proposer: it reads a brief and edits a copy of files; the diff is proposed."""

from collections.abc import Iterator, Mapping

from kept.core.ports import Scope
from kept.core.proposal import Brief, ProposerReply
from kept.core.rollout import Failure, Rollout
from kept.models.prompts import filled, prompt
from kept.proposers.program import BRIEF, COPY, WHY, edited, proposed, told
from kept.proposers.showing import facts_of
from kept.sandbox.coding_agents.errand import Errand
from kept.sandbox.coding_agents.run import Harness

_AGENT = "agent"


class AgentProposer:
    """Sends an agent for every brief."""

    serial = False
    builds = True

    def __init__(
        self,
        harness: Harness,
        name: str = _AGENT,
        worst_usd: float | None = None,
        fields: tuple[str, ...] = (),
        own: str | None = None,
    ) -> None:
        """Of train cases it sees these fields: the others may hold the answer.

        It is told by Kept's own prompt, or by another one.
        """
        self._harness = harness
        self._worst = worst_usd
        self._fields = fields
        self.own = own
        self.name = name

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """What the agent made of the files."""
        harness = self._harness
        words = prompt_for(brief, self.own)

        async def execute(files: Mapping[str, bytes]) -> Rollout | Failure:
            return await harness.run(Errand(prompt=words, files=files))

        request = {
            "agent": harness.cli.name,
            "model": harness.config.name,
            "prompt": words,
            "brief": told(brief, self._fields),
        }
        ran = await scope.call(
            request, Rollout, lambda: edited(brief, execute, _AGENT, self._fields), self._worst
        )
        return ran if isinstance(ran, Failure) else proposed(brief, ran, _AGENT)


def prompt_for(brief: Brief, own: str | None = None) -> str:
    """What an agent is to do for a brief, and behind it what it has to keep to."""
    told = filled(own or prompt("agent"), facts_of(brief))
    return f"{told.rstrip()}\n\n" + "\n".join(_terms(brief))


def _terms(brief: Brief) -> Iterator[str]:
    objective, rules = brief.objective, brief.rules
    better = "higher" if objective.direction == "maximize" else "lower"
    yield f"The files are in `{COPY}/`. `{objective.metric}` should become {better}."
    yield ""
    yield (
        f"* `{BRIEF}` says what is known: the objective, `train` (cases like those that decide), "
        "`steps` (what was tried and what became of it), `memory`, `guidance`. Read it first."
    )
    if brief.parent is not None:
        yield (
            f"* `{COPY}/` holds the files that lead with the edits of step "
            f"{brief.parent.step.step} on top, which are not proven yet (`parent` in the brief). "
            "What you change is put on top of them, and both are measured as one change: limits "
            "count them too."
        )
    yield f"* You may change only: {', '.join(sorted(rules.artifacts))}. Remove no file."
    if rules.new_files:
        yield f"* You may add files that match: {', '.join(rules.new_files)}."
    if rules.max_files:
        yield f"* Change at most {rules.max_files} of them."
    if rules.max_changed_lines:
        yield f"* Change at most {rules.max_changed_lines} lines, removed and added ones together."
    yield f"* Write to `{WHY}`, in a sentence or two, what you changed and why."
