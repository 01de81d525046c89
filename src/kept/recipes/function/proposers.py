"""Model proposers for a call from Python: `kept.edit`, `kept.reflect` and the like.

They are the same, with the same keys, as those under `proposers` of a task.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

from pydantic import ValidationError

from kept import settings
from kept.core.ports import Proposer
from kept.errors import SetupError
from kept.models.prompts import prompt, strange_places
from kept.models.providers import ModelConfig, config_of
from kept.proposers.by_model import ByModelSpec, Kind, make_editor
from kept.proposers.registry import PROPOSERS

ModelLike = str | Mapping[str, Any]
"""`provider/model`, or a mapping with the keys of a model block in a task."""


class Keys(TypedDict, total=False):
    """Options of a model proposer besides its model; all have defaults."""

    fields: Sequence[str]
    """Fields of train cases that the model may see; by default none: they may hold the answer."""
    cases: int
    """Number of train cases on which the incumbent is run first, for the model to see."""
    traces: int
    """Number of these whose traces are shown completely."""
    refused: int
    """Number of unsuccessful proposals that are shown with their verdicts."""
    prompt: str | Path
    """File that replaces Kept's own prompt."""
    name: str
    """Name of the proposer; by default that of the function."""


class ReflectKeys(Keys, total=False):
    """Options of `reflect`."""

    batch: int
    """Number of the `cases` that the model is shown in a step."""


def edit(model: ModelLike | None = None, **keys: Unpack[Keys]) -> Proposer:
    """Return a proposer that makes a few precise edits; by default with the model of KEPT_MODEL."""
    return _made("edit", model, keys)


def reflect(model: ModelLike | None = None, **keys: Unpack[ReflectKeys]) -> Proposer:
    """Return a proposer whose model first explains failures in a few cases, and then edits."""
    return _made("reflect", model, keys)


def rewrite(model: ModelLike | None = None, **keys: Unpack[Keys]) -> Proposer:
    """Return a proposer whose model rewrites whole texts."""
    return _made("rewrite", model, keys)


def simplify(model: ModelLike | None = None, **keys: Unpack[Keys]) -> Proposer:
    """Return a proposer whose model shortens texts; a shorter text is kept if it is not worse."""
    return _made("simplify", model, keys)


def _made(kind: Kind, model: ModelLike | None, keys: Mapping[str, Any]) -> Proposer:
    said = {key: value for key, value in keys.items() if key not in ("name", "prompt")}
    if "fields" in said and not isinstance(said["fields"], str):
        said["fields"] = list(said["fields"])
    if model is not None:
        said["model"] = model if isinstance(model, str) else dict(model)
    try:
        spec = cast("ByModelSpec", PROPOSERS.validate({"kind": kind, **said}))
    except ValidationError as error:
        raise _refused(kind, error) from error
    config = _config(kind, spec)
    text, name = _told(kind, keys.get("prompt")), keys.get("name") or kind
    return make_editor(spec, ("optimizer", config), spec.fields or (), text, name)


def _config(kind: Kind, spec: ByModelSpec) -> ModelConfig:
    if spec.model is not None:
        return spec.model.config(Path.cwd())
    named = settings.model()
    if named is None:
        hint = f'write kept.{kind}(model="openai/gpt-5-mini"), or name one in KEPT_MODEL'
        raise SetupError(f"kept.{kind} has no model", hint=hint)
    return replace(config_of(named), folder=Path.cwd())


def _told(kind: Kind, file: str | Path | None) -> str:
    """Return the prompt of the model: Kept's own, or that of a file."""
    if file is None:
        return prompt(kind)
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        hint = f"`kept prompts copy FOLDER {kind}` writes Kept's own, to be changed"
        raise SetupError(f"cannot read {file}: {why}", hint=hint) from error
    for line, words in strange_places(kind, text):
        raise SetupError(f"{file}:{line} `{words}` is no placeholder of the prompt `{kind}`")
    return text


def _refused(kind: Kind, error: ValidationError) -> SetupError:
    """Return the first problem of a call, by the name of its argument."""
    # the first part of a location is the kind of proposer
    mine = [row for row in error.errors() if kind in str(row["loc"][:1]).lower()]
    row = (mine or error.errors())[0]
    place = ".".join(str(part) for part in row["loc"][1:]) or "its arguments"
    known = ", ".join([*(ReflectKeys if kind == "reflect" else Keys).__annotations__])
    if row["type"] == "extra_forbidden":
        return SetupError(f"kept.{kind} has no `{place}`", hint=f"there are model, {known}")
    return SetupError(f"`{place}` of kept.{kind}: {row['msg'].removeprefix('Value error, ')}")
