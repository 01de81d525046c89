"""Harness for all agent CLIs: workspace, environment, execution, result.

The agent works in the output folder of its own workspace and gets nothing else. The task's
folder, other cases and expected outputs are not there. Files of the request, skill and
instructions lie where its CLI looks for them. The result is a trace, and the files that it left.

Its home is fresh. It gets a few harmless environment variables, those in `sandbox.env`, and its
one key. The key is removed from all that it prints or leaves behind.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from shlex import join

from kept.core.artifact import Candidate
from kept.core.case import IMPLICIT_CASE
from kept.core.rollout import Failure, Rollout
from kept.errors import SetupError
from kept.models.providers import ModelConfig, address, key_of
from kept.sandbox.bwrap import INSIDE
from kept.sandbox.capabilities import abilities
from kept.sandbox.coding_agents.claude import CLAUDE
from kept.sandbox.coding_agents.codex import CODEX
from kept.sandbox.coding_agents.definition import Cli, Errand, Session, Target, rendered
from kept.sandbox.coding_agents.opencode import OPENCODE
from kept.sandbox.coding_agents.result import Result, hide, session_of
from kept.sandbox.command import MIB, Command, Exit
from kept.sandbox.workspace import MAX_OUTPUT, Output, Scratch, Workspace
from kept.settings import hide_in, logins
from kept.store.candidate_files import write_below

MOST_TEXT = 8 * MIB
"""Maximum bytes kept of a CLI's output; the last ones."""

NO_KEY = "no-key-needed"
"""Placeholder for a server that needs no key: a CLI insists on one."""

HOME = ".kept-home"
"""Folder in the workspace for files that go into and come out of the CLI's home."""

_NOBODY = Candidate({})
_PROMPT = ".kept-prompt"
_FORGET = ".kept-forget"
"""Script that removes the key from the environment of tools."""
# copies prepared files into the fresh home, runs the CLI, then saves its sessions for us
_LINE = f"""\
cd "$KEPT_OUTPUT" && cp -R "{HOME}/." "$HOME" && rm -rf "{HOME}" || exit 126
unset KEPT_CANDIDATE
%s
%s < "$HOME/{_PROMPT}"
code=$?
%s
exit $code"""
_SAVE = f'mkdir "$KEPT_OUTPUT/{HOME}" && cp -R "$HOME/%s/." "$KEPT_OUTPUT/{HOME}" 2>/dev/null'


@dataclass(frozen=True, slots=True)
class Harness:
    """Runs one CLI with one model."""

    cli: Cli
    config: ModelConfig
    command: Command
    """Template with limits and view; the shell line is set here."""
    scratch: Scratch
    most_output: int = MAX_OUTPUT
    worst_usd: float | None = None
    """Declared maximum cost of one errand, charged if its token counts are impossible."""

    async def run(self, errand: Errand) -> Rollout | Failure:
        """Run an errand once."""
        try:
            key = key_of(self.config) or NO_KEY
        except SetupError as error:
            return Failure("harness", "infrastructure", str(error))
        prompt, shown = rendered(self.cli, errand)
        given = {**errand.files, **shown}
        target = self._target()
        command = self._command(target, errand, key)
        try:
            with self.scratch.workspace(_NOBODY, IMPLICIT_CASE, given, errand.folders) as workspace:
                write_below(workspace.output / HOME, self._home(target, prompt, errand, workspace))
                ended = await workspace.run(command)
                output = workspace.read_output(self.most_output)
        except OSError as error:
            message = f"cannot use the scratch folder: {error.strerror}"
            return Failure("limit", "infrastructure", message)
        if isinstance(output, Output):
            # before `brought` compresses the session, since a key in it could not be found later
            for secret in (key, *logins(target.base_url)):
                output = output._replace(files=hide_in(secret, output.files))
        if isinstance(ended, Exit):
            result = Result(
                self.cli, self.config, prompt, ended, command.timeout, self.worst_usd or 0.0
            )
            ended = result.brought(output, shown, HOME)
        for secret in (key, *logins(target.base_url)):
            ended = hide(secret, ended)
        return ended

    def _target(self) -> Target:
        config = self.config
        url = address(config) or ""
        return Target(
            provider=config.provider, model=config.model, base_url=url, effort=config.effort
        )

    def _command(self, target: Target, errand: Errand, key: str) -> Command:
        session = errand.session.id if errand.session else ""
        words = self.cli.words(target, session)
        forget = f'export {self.cli.shell}="$HOME/{_FORGET}"' if self.cli.shell else ":"
        save = _SAVE % self.cli.sessions if self.cli.sessions else ":"
        env = {**self.cli.environment(target), self.cli.key: key}
        return replace(
            self.command,
            line=_LINE % (forget, join(words), save),
            cwd=Path("/"),
            env=env,
            most_text=MOST_TEXT,
        )

    def _home(
        self, target: Target, prompt: str, errand: Errand, workspace: Workspace
    ) -> dict[str, bytes]:
        texts = {**self.cli.home(target), _PROMPT: prompt, _FORGET: f"unset {self.cli.key}\n"}
        files = {path: text.encode("utf-8", "surrogateescape") for path, text in texts.items()}
        if errand.session is not None:
            # a CLI may derive a session's place from its working folder, so use the path that it
            # sees
            where = INSIDE / workspace.output.name if self._walled else workspace.output
            name = self.cli.session_file(errand.session.id, str(where))
            files[f"{self.cli.sessions}/{name}"] = errand.session.data
        return files

    @property
    def _walled(self) -> bool:
        view = self.command.view
        return view is not None and view.walls and abilities().walls


CLIS = {cli.name: cli for cli in (CODEX, CLAUDE, OPENCODE)}
"""Agent CLIs by their name in a spec."""

__all__ = ["CLIS", "Cli", "Errand", "Harness", "Session", "session_of"]
