"""External proposers: any program or agent CLI that edits a copy of the files.

The diff is proposed. The program gets `candidate/`, a copy of the incumbent's files, and
`brief.json`; it may leave its reason in `why.txt`. The execution is one journalled call, so a
resumed run does not repeat it.

The brief has plain values for any language. It has no holdout case, path or time, so the same
brief is the same text in every session.

    KEPT_BRIEF        JSON file: step, seed, objective, incumbent, named fields of train cases …
    KEPT_CANDIDATE    folder with a copy of the incumbent's files, to be edited
    KEPT_OUTPUT       folder for `why.txt`; without it, the last line of stdout is the reason

Exit 0 without a change, and exit 75, mean that there is nothing to propose.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal, cast

from pydantic import Field

from kept.core.artifact import Candidate, Heading, Region
from kept.core.case import IMPLICIT_CASE, Case
from kept.core.edit import Edit, Write, apply_edits, edits_between
from kept.core.ports import Scope
from kept.core.proposal import Brief, ClosedStep, Proposal, ProposerReply, Skip, strongest
from kept.core.rollout import Failure, Rollout
from kept.core.text import count
from kept.evaluators.runners.coding_agent import (
    TIMEOUT as AGENT_TIMEOUT,
)
from kept.evaluators.runners.coding_agent import (
    AgentModel,
    AgentName,
    agent_warnings,
    check_agent,
    harness_of,
    misfits,
)
from kept.models.prompts import Name, filled, prompt
from kept.proposers.prompt_items import facts_of
from kept.proposers.registry import ProposerComponent
from kept.sandbox.coding_agents.definition import Errand
from kept.sandbox.coding_agents.run import Harness
from kept.sandbox.command import TIMEOUT, Command, Exit, Network
from kept.sandbox.workspace import Scratch
from kept.spec.checks import check_fields, read_prompt
from kept.spec.command_lines import check_script
from kept.spec.components import BuildContext, CheckContext, ModelNeed, Needs
from kept.spec.validate import Finite, OneOrMore, Seconds, SpecModel, Text

RECENT = 20
"""Number of latest closed steps that the brief includes."""


def plain_brief(brief: Brief, fields: tuple[str, ...] = ()) -> Mapping[str, object]:
    """Content of `brief.json`; train cases have only `fields` and the expected output."""
    objective = brief.objective
    return {
        "step": brief.step,
        "phase": brief.turn.phase,
        "turn": brief.turn.number,
        "seed": brief.seed,
        "objective": {
            "metric": objective.metric,
            "direction": objective.direction,
            "bounds": objective.bounds,
            "constraints": [str(constraint) for constraint in objective.constraints],
            "tie_breakers": [f"{tie.prefer} {tie.metric}" for tie in objective.tie_breakers],
        },
        "incumbent": {"id": brief.incumbent.id, "files": dict(brief.incumbent.texts)},
        "may_change": sorted(brief.rules.artifacts),
        "may_create": list(brief.rules.new_files),
        "protected": list(_protected(brief)),
        "max_files": brief.rules.max_files,
        "max_changed_lines": brief.rules.max_changed_lines,
        # train cases only: deciding and test cases must never reach a proposer
        "train": [_train(brief, case, fields) for case in brief.train],
        "steps": [_step(step) for step in brief.history.last(RECENT)],
        "pool": _pool(brief),
        "memory": [note.text for note in brief.memory],
        "guidance": dict(brief.guidance),
        **_parent(brief),
    }


def _train(brief: Brief, case: Case, fields: tuple[str, ...]) -> Mapping[str, object]:
    expected = brief.labels.expected_of(case) if brief.labels.shown else ""
    told = {"expected": expected} if expected else {}
    data, shown = case.data, None  # data without fields may be the answer as well as the question
    if isinstance(data, dict):
        known = cast("dict[str, object]", data)
        shown = {name: known[name] for name in fields if name in known}
    return {"id": case.id, "data": shown, **told}


def _parent(brief: Brief) -> Mapping[str, object]:
    """Step that `incumbent` already includes, if it builds on a promising one; else empty."""
    if brief.parent is None:
        return {}
    step, leads = brief.parent.step, brief.parent.incumbent
    about = "incumbent holds what leads with the edits of this step on top, not yet proven"
    files = {"id": leads.id, "files": dict(leads.texts)}
    return {"parent": {"about": about, **_step(step), "made_for": files}}


def _pool(brief: Brief) -> list[Mapping[str, object]]:
    """Promising steps, and the train cases on which each is best."""
    best = strongest(brief.pool)
    # steps close in order, so a step's number is its place
    made = {miss.step: brief.history[miss.step].proposal for miss in brief.pool}
    return [
        {
            "step": miss.step,
            "why": proposal.why if (proposal := made[miss.step]) else "",
            "edits": _brief_edits(made[miss.step]),
            "metric": {case: brief.objective.value(loss) for case, loss in miss.losses},
            "best_on": sorted(case for case, one in best.items() if one is miss),
        }
        for miss in brief.pool
    ]


def _protected(brief: Brief) -> Iterator[Mapping[str, str]]:
    """Protected regions and headings of all artifacts, in the form of a spec."""
    rows = (artifact.protected for artifact in brief.rules.artifacts.values())
    for one in dict.fromkeys(one for row in rows for one in row):
        match one:
            case Region(begin, end):
                yield {"begin": begin, "end": end}
            case Heading(title):
                yield {"section": title}


def _step(step: ClosedStep) -> Mapping[str, object]:
    return {
        "step": step.step,
        "proposer": step.turn.proposer,
        "why": step.proposal.why if step.proposal else "",
        "edits": _brief_edits(step.proposal),
        "outcome": step.verdict.outcome,
        "reason": step.verdict.reason,
        "code": step.verdict.code,
    }


def _brief_edits(proposal: Proposal | None) -> list[Mapping[str, object]]:
    return [asdict(edit) for edit in proposal.edits] if proposal else []


COPY = "candidate"
BRIEF = "brief.json"
WHY = "why.txt"
MAX_WHY = 2000

Execute = Callable[[Mapping[str, bytes]], Awaitable[Rollout | Failure]]
"""Runs a program on files, and returns all files that it left."""


def told(brief: Brief, fields: tuple[str, ...]) -> str:
    """Content of `brief.json` as text."""
    plain = plain_brief(brief, fields)
    return json.dumps(plain, ensure_ascii=False, sort_keys=True, default=str)


async def edited(
    brief: Brief, execute: Execute, who: str, fields: tuple[str, ...]
) -> Rollout | Failure:
    """Run a program on the files; the rollout holds the files that it changed or created."""
    texts = brief.incumbent.texts
    files = {f"{COPY}/{p}": t.encode("utf-8", "surrogateescape") for p, t in texts.items()}
    files[BRIEF] = told(brief, fields).encode("utf-8", "surrogatepass")
    ran = await execute(files)
    if isinstance(ran, Failure):
        # an error of a proposer is not the candidate's fault
        return replace(ran, blame="infrastructure")
    gone = [path for path in texts if f"{COPY}/{path}" not in ran.files]
    if gone:
        message = f"the {who} removed `{gone[0]}`, and a proposal cannot remove a file"
        return Failure("refused", "infrastructure", message, usage=ran.usage)
    # unchanged files are known, and the journal need not hold them again
    news = {p: d for p, d in ran.files.items() if files.get(p) != d and p != BRIEF}
    return ran._replace(files=news)


def proposed(brief: Brief, ran: Rollout, who: str) -> Proposal | Skip | Failure:
    """Proposal from the files that a program changed; a `Skip` if it changed none."""
    changed = _changed(brief.incumbent, ran.files, who)
    if isinstance(changed, Failure):
        return changed
    edits = tuple(_edits(brief, changed))
    if not edits:
        return Skip(last_line(ran.output) or f"the {who} changed nothing")
    why = ran.files.get(WHY, b"").decode("utf-8", "replace").strip()
    return Proposal(edits, why=(why or last_line(ran.output))[:MAX_WHY])


def _changed(
    incumbent: Candidate, files: Mapping[str, bytes], who: str
) -> Mapping[str, str] | Failure:
    """Texts by path of the files that a program changed or created."""
    texts: dict[str, str] = {}
    for path, data in files.items():
        if not path.startswith(f"{COPY}/"):
            continue
        name = path.removeprefix(f"{COPY}/")
        # a new file that is not UTF-8 is ignored; an artifact that becomes binary is an error
        try:
            texts[name] = data.decode()
        except UnicodeDecodeError:
            if name in incumbent.texts:
                message = f"the {who} left `{name}` as something that is not UTF-8 text"
                return Failure("parse", "infrastructure", message)
    return texts


def _edits(brief: Brief, changed: Mapping[str, str]) -> Iterator[Edit]:
    for path, text in sorted(changed.items()):
        before = brief.incumbent.texts.get(path)
        if before == text:
            continue
        parts = edits_between(path, before, text) if before is not None else ()
        # half of a program's change may not be what it meant: if one part would be refused
        # by itself, the whole file is one edit, accepted or refused together
        if parts and apply_edits(brief.incumbent, parts, brief.rules).complete:
            yield from parts
        else:
            yield Write(path, text)


def last_line(text: str) -> str:
    """Last line that is not empty."""
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""


_AGENT = "agent"


class AgentProposer:
    """Runs an agent CLI for every brief."""

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
        """Store the settings; `fields` are those of train cases that the agent sees.

        Other fields may hold the answer. `own` replaces the built-in prompt.
        """
        self._harness = harness
        self._worst = worst_usd
        self._fields = fields
        self.own = own
        self.name = name

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Propose the agent's changes to the files."""
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
    """Prompt of an agent for a brief, followed by the rules that it must keep to."""
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


NOTHING = 75
"""EX_TEMPFAIL of sysexits.h: nothing to propose now, perhaps later."""

# in the output folder, the one place that a sandboxed command may write to
_PLACES = f"""\
KEPT_CANDIDATE="$KEPT_OUTPUT/{COPY}" KEPT_BRIEF="$KEPT_OUTPUT/{BRIEF}"
export KEPT_CANDIDATE KEPT_BRIEF
"""


class CommandProposer:
    """Runs a command for every brief."""

    serial = False
    builds = True

    def __init__(
        self,
        command: Command,
        scratch: Scratch,
        name: str = "command",
        fields: tuple[str, ...] = (),
    ) -> None:
        self._command = command
        self._scratch = scratch
        self.name = name
        self._fields = fields
        """Fields of train cases that the program sees; others may hold the answer."""

    async def propose(self, brief: Brief, scope: Scope) -> ProposerReply:
        """Propose the command's changes to the files."""

        async def execute(files: Mapping[str, bytes]) -> Rollout | Failure:
            return await self._execute(brief.incumbent, files)

        request = {"command": self._command.line, "brief": told(brief, self._fields)}
        ran = await scope.call(
            request, Rollout, lambda: edited(brief, execute, "command", self._fields)
        )
        if isinstance(ran, Failure):
            return ran
        if ran.metrics.get("exit") == NOTHING:
            return Skip(last_line(ran.output) or f"the command says so (exit {NOTHING})")
        return proposed(brief, ran, "command")

    async def _execute(self, incumbent: Candidate, files: Mapping[str, bytes]) -> Rollout | Failure:
        command = replace(self._command, line=_PLACES + self._command.line)
        try:
            with self._scratch.workspace(incumbent, IMPLICIT_CASE, files) as workspace:
                ended = await workspace.run(command)
                failure = ended if isinstance(ended, Failure) else self._fault(ended)
                if failure is not None:
                    return failure
                output = workspace.read_output()
        except OSError as error:
            message = f"cannot use the scratch folder: {error.strerror}"
            return Failure("limit", "infrastructure", message)
        assert isinstance(ended, Exit)
        if isinstance(output, Failure):
            return output
        return Rollout(output=ended.stdout, files=output.files, metrics={"exit": float(ended.code)})

    def _fault(self, ended: Exit) -> Failure | None:
        """Failure of an exit code or a timeout; None if the command ended well."""
        if ended.ok or (ended.code == NOTHING and not ended.timed_out):
            return None
        if ended.timed_out:
            message = f"no end after {count(self._command.timeout, 'second')}"
            return Failure("timeout", "infrastructure", message, ended.detail())
        return Failure("crash", "infrastructure", str(ended), ended.detail())


class CommandProposerSpec(SpecModel):
    """A program that reads a brief and edits a copy of the files."""

    kind: Literal["command"]
    command: Text
    cwd: Text = "."
    timeout_seconds: Seconds = TIMEOUT
    network: Network | None = None
    """Default: `sandbox.network`."""
    fields: OneOrMore | None = None
    """Fields of train cases; by default those shown to a runner's model, so no answers."""


class CommandProposerComponent(ProposerComponent[CommandProposerSpec]):
    """A program that reads a brief and edits a copy of the files."""

    Spec = CommandProposerSpec

    def check(self, spec: CommandProposerSpec, context: CheckContext) -> None:
        """Report a folder, a script or fields that do not exist."""
        if not (context.folder / spec.cwd).is_dir():
            context.report("cwd", f"there is no folder `{spec.cwd}`")
        check_script(context.source, context.loc)
        check_fields(context, spec.fields)

    def build(self, spec: CommandProposerSpec, context: BuildContext) -> CommandProposer:
        """Build the command in the runner's sandbox, with the network that the spec names."""
        folder = context.folder / spec.cwd
        command = context.sandbox.runner(Command(spec.command, folder, spec.timeout_seconds))
        if spec.network is not None and command.view is not None:
            command = replace(command, view=replace(command.view, network=spec.network))
        seen = context.shown if spec.fields is None else spec.fields
        return CommandProposer(command, context.scratch, context.name, seen)

    def needs(self, spec: CommandProposerSpec) -> Needs:
        """Command, folder, and time of one run."""
        return Needs(
            commands=(spec.command,), folders=(spec.cwd,), worst_seconds=spec.timeout_seconds
        )


class AgentProposerSpec(SpecModel):
    """An agent that reads a brief and edits a copy of the files."""

    kind: Literal["agent"]
    agent: AgentName
    model: AgentModel
    prompt: Text | None = None
    """File with a prompt that replaces the built-in one."""
    timeout_seconds: Seconds = AGENT_TIMEOUT
    usd_per_call: Annotated[Finite, Field(ge=0)] | None = None
    """Upper bound of the cost of one proposal; required if money is limited."""
    fields: OneOrMore | None = None
    """Fields of train cases; by default those shown to a runner's model, so no answers."""

    @classmethod
    def faults(cls, said: Mapping[str, Any]) -> Iterator[str]:
        """Report a model that the agent cannot use."""
        yield from misfits(said)


class AgentProposerComponent(ProposerComponent[AgentProposerSpec]):
    """An agent that reads a brief and edits a copy of the files."""

    Spec = AgentProposerSpec

    def check(self, spec: AgentProposerSpec, context: CheckContext) -> None:
        """Report an agent that cannot be run here, and missing prompts, fields and prices."""
        if spec.prompt:
            text = read_prompt(context.source, context.at("prompt"), spec.prompt, "agent")
            context.found.update({spec.prompt: text} if text else {})
        check_agent(context, spec)
        check_fields(context, spec.fields)
        if spec.usd_per_call is None and context.elsewhere("budget", "max_usd") is not None:
            message = "what a proposal costs at most is not known, so `max_usd` could not be kept"
            context.report((), message, "give `usd_per_call`")

    def build(self, spec: AgentProposerSpec, context: BuildContext) -> AgentProposer:
        """Build the agent CLI in its sandbox."""
        harness = harness_of(spec, context, worst_usd=spec.usd_per_call)
        seen = context.shown if spec.fields is None else spec.fields
        own = context.found.get(spec.prompt or "")
        text = own if isinstance(own, str) else None
        return AgentProposer(harness, context.name, spec.usd_per_call, seen, text)

    def needs(self, spec: AgentProposerSpec) -> Needs:
        """Model, prompt, and upper bounds of time and cost of one proposal."""
        return Needs(
            models=(ModelNeed("optimizer", spec.model, by_agent=spec.agent),),
            prompts=(spec.prompt,) if spec.prompt else (),
            worst_seconds=spec.timeout_seconds,
            worst_usd=spec.usd_per_call,
        )

    def prompt_places(self, given: dict[str, object]) -> Iterator[tuple[Name, dict[str, object]]]:
        """The proposer itself."""
        yield "agent", given

    def warnings(self, spec: AgentProposerSpec, context: BuildContext) -> Iterator[str]:
        """Warnings about the agent before a run."""
        return agent_warnings(spec, context.folder)
