"""What every proposer does that has a program edit a copy of the files: the diff is proposed.

The program finds `candidate/`, a copy of the incumbent's files, and `brief.json`; it may leave its
reason in `why.txt`. The execution is one journalled call, so a resumed run does not repeat it.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace

from kept.core.artifact import Candidate
from kept.core.edit import Edit, Write, apply_edits
from kept.core.proposal import Brief, Proposal, Skip
from kept.core.rollout import Failure, Rollout
from kept.proposers.briefing import plain_brief
from kept.proposers.splices import edits_between

COPY = "candidate"
BRIEF = "brief.json"
WHY = "why.txt"
MAX_WHY = 2000

Execute = Callable[[Mapping[str, bytes]], Awaitable[Rollout | Failure]]
"""Has a program work on files, and brings back all that it left."""


def told(brief: Brief, fields: tuple[str, ...]) -> str:
    """What goes into `brief.json`."""
    plain = plain_brief(brief, fields)
    return json.dumps(plain, ensure_ascii=False, sort_keys=True, default=str)


async def edited(
    brief: Brief, execute: Execute, who: str, fields: tuple[str, ...]
) -> Rollout | Failure:
    """What a program made of the files: a rollout that holds those that it changed or made."""
    texts = brief.incumbent.texts
    files = {f"{COPY}/{p}": t.encode("utf-8", "surrogateescape") for p, t in texts.items()}
    files[BRIEF] = told(brief, fields).encode("utf-8", "surrogatepass")
    ran = await execute(files)
    if isinstance(ran, Failure):
        # no candidate is to blame for its proposer
        return replace(ran, blame="infrastructure")
    gone = [path for path in texts if f"{COPY}/{path}" not in ran.files]
    if gone:
        message = f"the {who} removed `{gone[0]}`, and a proposal cannot remove a file"
        return Failure("refused", "infrastructure", message, usage=ran.usage)
    # what did not change is known, and the journal need not hold it once more
    news = {p: d for p, d in ran.files.items() if files.get(p) != d and p != BRIEF}
    return ran._replace(files=news)


def proposed(brief: Brief, ran: Rollout, who: str) -> Proposal | Skip | Failure:
    """What a program's work comes to."""
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
    """Texts by path, of the files that a program changed or made."""
    texts: dict[str, str] = {}
    for path, data in files.items():
        if not path.startswith(f"{COPY}/"):
            continue
        name = path.removeprefix(f"{COPY}/")
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
        # half of what a program did is not what it meant: where one of its parts would be refused
        # by itself, all of it stands or falls together
        if parts and apply_edits(brief.incumbent, parts, brief.rules).complete:
            yield from parts
        else:
            yield Write(path, text)


def last_line(text: str) -> str:
    """The last line that says something."""
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""
