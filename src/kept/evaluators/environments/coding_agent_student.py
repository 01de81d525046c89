"""Agent CLI as student: it finds the skill and the task in a workspace, and is asked once.

The skill is a folder in the place where the CLI looks for skills. The rollout keeps all output of
the agent, and its session state if a probe may continue from it. An execution is one call of the
journal: one that has returned is not repeated.
"""

from collections.abc import Iterator
from dataclasses import replace

from kept.core.artifact import Candidate
from kept.core.case import Case
from kept.core.llm import COMMAND, FINAL, failed
from kept.core.ports import Scope
from kept.core.rollout import Failure, Job, Rollout, TraceItem
from kept.errors import KeptError, SetupError
from kept.evaluators.environments.base import SKILL, Environment, Episode, Posed
from kept.evaluators.environments.chat_student import (
    Probing,
    packed_session,
    probing_of,
    session_data,
    skill_of,
)
from kept.evaluators.environments.pictures import marked, picture_files
from kept.sandbox.coding_agents.definition import Errand, Session
from kept.sandbox.coding_agents.result import session_of
from kept.sandbox.coding_agents.run import Harness

TASK = "task.md"
"""Path of the task in the workspace."""

_PROBED = "feedback"
"""Purpose of rollouts that a probe may continue from."""


class WorkspaceRunner:
    """Runner that starts an agent CLI once for each case."""

    def __init__(self, env: Environment, harness: Harness) -> None:
        if env.simulates:
            raise SetupError(
                f"`{env.name}` {env.played}, which `{harness.cli.name}` cannot",
                hint="name a chat model as the student, as in `student_backend: openai_chat`",
            )
        self._env = env
        self._harness = harness

    async def run(
        self, job: Job, candidate: Candidate, case: Case, scope: Scope
    ) -> Rollout | Failure:
        """Run the agent once."""
        try:
            episode = self._env.begin(case, job, scope.branch("episode"))
        except KeptError as error:
            return Failure("harness", "infrastructure", str(error), tried=True)
        try:
            return await self._run(episode, job, candidate, scope)
        finally:
            await episode.close()

    async def _run(
        self, episode: Episode, job: Job, candidate: Candidate, scope: Scope
    ) -> Rollout | Failure:
        posed = await episode.pose()
        if isinstance(posed, Failure):
            return posed
        errand = self._errand(posed, candidate)
        harness = self._harness
        given = sum(map(len, errand.files.values()))
        # what it was given lies in its workspace again when it is done
        harness = replace(harness, most_output=harness.most_output + given)

        async def run() -> Rollout | Failure:
            ran = await harness.run(errand)
            if isinstance(ran, Failure):
                return ran
            changed = {p: d for p, d in ran.files.items() if errand.files.get(p) != d}
            return ran._replace(files=changed)

        request = {"agent": harness.cli.name, "model": harness.config.name, "job": list(job)}
        ran = await scope.call(request, Rollout, run)
        if isinstance(ran, Failure):
            return ran
        trace = tuple(self._told(ran, posed, keeps=job.purpose == _PROBED))
        if not ran.output.strip():
            nothing = Failure("empty", "candidate", "the agent answered nothing")
            return Rollout(trace=(*trace, failed(nothing)))
        cli = harness.cli
        left = {p: d for p, d in ran.files.items() if p not in (cli.raw, cli.summary, cli.session)}
        turn = await episode.answer(ran.output, left)
        if isinstance(turn, Failure):
            infra = turn.blame == "infrastructure"
            return turn if infra else Rollout(trace=(*trace, failed(turn)))
        output = ran.output if turn.output is None else turn.output
        # the scope has counted what it used
        return Rollout(output, turn.metrics, turn.files, trace)

    async def close(self) -> None:
        """Remove the scratch folder."""
        self._harness.scratch.close()
        await self._env.close()

    def _errand(self, posed: Posed, candidate: Candidate) -> Errand:
        skill = skill_of(candidate)
        texts = {SKILL: skill.pop(SKILL, ""), **skill}
        pictures = picture_files(posed.images)
        prompt = marked(posed.prompt, posed.images, list(pictures))
        task = "\n\n".join(part for part in (posed.system.strip(), prompt) if part)
        probing = probing_of(candidate)
        session = self._session(probing) if probing is not None else None
        return Errand(
            prompt=task if probing is None else _probed(task, probing, resumed=session is not None),
            files={**posed.files, **pictures, TASK: task.encode("utf-8", "surrogateescape")},
            skill=texts if any(text.strip() for text in texts.values()) else {},
            session=session,
        )

    def _session(self, probing: Probing) -> Session | None:
        """Session to resume; None if the CLI cannot resume or another CLI made the rollout."""
        item = probing.session
        if item is None or probing.after is None:
            return None
        cli = self._harness.cli
        named = TraceItem("info", "", {"session": item.data["session"]})
        earlier = Rollout(files={cli.session: session_data(item)}, trace=(named,))
        return session_of(cli, earlier, probing.after)

    def _told(self, ran: Rollout, posed: Posed, *, keeps: bool) -> Iterator[TraceItem]:
        """Trace for analysts, followed by the session item that only a probe gets."""
        cli = self._harness.cli
        yield from (TraceItem("info", note) for note in posed.notes)
        if self._env.turns() > 1:
            yield TraceItem("info", "an agent CLI is asked once, however many turns there may be")
        summary = ran.files.get(cli.summary, b"").decode("utf-8", "replace")
        session = ""
        last = next((item for item in reversed(ran.trace) if item.role == "assistant"), None)
        for item in ran.trace:
            session = str(item.data.get("session") or session)
            yield _item(item, summary, final=item is last)
        raw = ran.files.get(cli.raw, b"").decode("utf-8", "replace")
        yield packed_session(raw, ran.files.get(cli.session) if keeps else None, session)


def _item(item: TraceItem, summary: str, *, final: bool) -> TraceItem:
    if final:
        return replace(item, data={**item.data, FINAL: True})
    if item.role == "tool":
        done, _, came = item.text.partition("\n")
        lines = (line.removeprefix("  ") for line in came.split("\n"))
        data = {**item.data, COMMAND: done.removeprefix("$ ")}
        return replace(item, text="\n".join(lines), data=data)
    if "session" in item.data:
        return replace(item, data={"summary": summary})
    return item


def _probed(task: str, probing: Probing, *, resumed: bool) -> str:
    """Prompt of a probe: resumed, from the start, or with the earlier steps as text."""
    if resumed:
        return probing.instruction
    if not probing.before:
        return f"{task}\n\n{probing.instruction}"
    lines: list[str] = []
    for item in probing.before:
        if item.role not in ("system", "user"):
            command = f"$ {item.data[COMMAND]}\n" if COMMAND in item.data else ""
            lines.append(f"[{item.role}] {command}{item.text}")
    done = "\n".join(lines)
    return f"{task}\n\nSo far you have done this:\n\n{done}\n\n{probing.instruction}"
