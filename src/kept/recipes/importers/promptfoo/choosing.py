"""What of a config is meant, where it has several."""

from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError

from kept.errors import SetupError
from kept.evaluators.scorers.assertions.assertions import GRADED, leaves
from kept.models.providers import parse
from kept.recipes.importers.promptfoo.cases import common_test
from kept.recipes.importers.promptfoo.config import (
    ConfigSpec,
    Grader,
    ProviderConfig,
    ProviderSpec,
    mapping_of,
)
from kept.recipes.importers.promptfoo.prompts import Prompt
from kept.recipes.importers.promptfoo.providers import model_block
from kept.recipes.importers.promptfoo.reading import ReadConfig, provider_of
from kept.recipes.importers.promptfoo.tests import Placed
from kept.spec.source import Source


@dataclass(frozen=True, slots=True)
class Chosen:
    """What of a config is meant, where it has several."""

    prompt: str | None = None
    """The label of the one to begin with; by default the first."""
    provider: str | None = None
    """The id or label of the one to ask, or a model of Kept's; by default the first."""
    judge: str | None = None
    """Who grades, where the config does not say: a provider, or a model of Kept's."""
    optimizer: str | None = None
    """Who writes further prompts: a model of Kept's, or a provider; by default nobody where there
    are several."""
    limited: bool = False
    """Whether the task has a limit of money, where that can be kept."""


def judge_of(read: ReadConfig, chosen: Chosen) -> dict[str, Any] | None:
    """Who grades: one for all."""
    found: dict[str, tuple[Source, Grader]] = {}
    for source, grader in read.graders:
        given = grader.provider
        given = (mapping_of(given) or {}).get("text", given)
        found.setdefault(str(given), (source, grader._replace(provider=given)))
    if len(found) > 1:
        source, grader = list(found.values())[1]
        # its id alone: what else is said of it may be a key
        first = mapping_of(provider_of(next(iter(found.values()))[1].provider)) or {}
        named = f": `{first['id']}`" if isinstance(first.get("id"), str) else ""
        message = f"another model grades elsewhere{named}"
        source.report(grader.loc, message, "let one grade all")
    if found:
        source, grader = next(iter(found.values()))
        spec = provider_of(grader.provider)
        said = cast("dict[str, Any]", spec) if isinstance(spec, dict) else {}
        if not isinstance(said.get("id"), str):
            source.report(grader.loc, "is no provider", "write it as in openai:chat:gpt-5-mini")
            return None
        try:
            settings = ProviderConfig.model_validate(said.get("config") or {})
        except ValidationError as error:
            key = ".".join(map(str, error.errors()[0]["loc"]))
            source.report((*grader.loc, "config"), f"`{key}` is not known here, or is wrong")
            return None
        return model_block(source, grader.loc, ProviderSpec(id=said["id"], config=settings))
    graded = _graded(read)
    if graded is None:
        return None
    if chosen.judge is not None:
        return own_model(chosen.judge) or model_block(
            read.source, ("judge",), ProviderSpec(id=chosen.judge)
        )
    placed, kind = graded
    hint = "name one in `defaultTest.options.provider`, as in openai:chat:gpt-5-mini"
    placed.source.report((*placed.loc, "assert"), f"nobody is named to grade `{kind}`", hint)
    return None


def _graded(read: ReadConfig) -> tuple[Placed, str] | None:
    """The first assertion that a model decides."""
    common = common_test(read.default, read.source)
    for placed in (common, *read.tests):
        for one in placed.spec.assert_:
            for leaf in leaves(one):
                if leaf.base in GRADED:
                    return placed, leaf.base
    return None


def own_model(name: str) -> dict[str, Any] | None:
    """A model of Kept's, `provider/model`; None where it is none."""
    try:
        provider, model = parse(name)
    except ValueError:
        return None
    return {"provider": provider, "model": model}


def optimizer_of(read: ReadConfig, chosen: Chosen) -> dict[str, Any] | None:
    """Who writes further prompts; None where nobody is named."""
    name = chosen.optimizer
    if name is None:
        return None
    hint = "write it as in openai/gpt-5, or as promptfoo does: openai:chat:gpt-5"
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance] # whatever a call was given
        raise SetupError(f"who writes prompts is {name!r:.60}, and not a name", hint=hint)
    own = own_model(name)
    if own is None and ":" not in name:
        raise SetupError(f"`{name}` is no model that could write prompts", hint=hint)
    return own or model_block(read.source, ("reflection_lm",), ProviderSpec(id=name))


def target_of(
    config: ConfigSpec, blocks: list[dict[str, Any] | None], chosen: Chosen
) -> tuple[dict[str, Any], tuple[str, ...] | None]:
    """The model that is asked, and the labels of the prompts that it is asked with."""
    if chosen.provider is not None:
        for spec, made in zip(config.providers, blocks, strict=True):
            if chosen.provider in (spec.id, spec.label) and made is not None:
                return made, spec.prompts
        own = own_model(chosen.provider)
        if own is None:
            known = ", ".join(spec.label or spec.id for spec in config.providers) or "none"
            raise SetupError(
                f"there is no provider `{chosen.provider}` in the config",
                hint=f"there are {known}; or give a model of Kept's, as in local/smollm2",
            )
        # how the first is asked goes for whoever is asked in its place
        said = (blocks[0] if blocks else None) or {}
        shape = {key: said[key] for key in ("temperature", "top_p", "max_tokens") if key in said}
        return {**own, **shape}, None
    if not config.providers or blocks[0] is None:
        hint = "name a provider in the config, or give one, as in local/smollm2"
        raise SetupError("the config names nobody to ask", hint=hint)
    return blocks[0], config.providers[0].prompts


def reached(block: dict[str, Any]) -> dict[str, Any]:
    """The same model for another purpose: where it is, and not how it is to answer."""
    address = ("provider", "model", "base_url", "api_key", "api_version")
    return {key: block[key] for key in address if key in block}


def usable(prompts: list[Prompt], labels: tuple[str, ...] | None) -> list[Prompt]:
    """The prompts that a provider is asked with, each text once."""
    chosen = [
        prompt
        for prompt in prompts
        if labels is None or any(_meant(prompt.label, one) for one in labels)
    ]
    return list({prompt.text: prompt for prompt in reversed(chosen)}.values())[::-1]


def _meant(label: str, pattern: str) -> bool:
    return label == pattern or label.startswith(f"{pattern.rstrip('*:')}:")


def first_of(prompts: list[Prompt], chosen: Chosen) -> Prompt:
    """The prompt to begin with."""
    known = ", ".join(prompt.label for prompt in prompts)
    if not prompts:
        raise SetupError("the provider is asked with none of the prompts")
    if chosen.prompt is None:
        return prompts[0]
    for prompt in prompts:
        if prompt.label == chosen.prompt:
            return prompt
    raise SetupError(f"there is no prompt `{chosen.prompt}`", hint=f"there are {known}")
