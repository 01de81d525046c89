"""Choice of authors from the arguments of a call: the adapter itself, a function, a model."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

from kept.adapters.gepa.arguments import Terms
from kept.adapters.reflection import (
    Author,
    FunctionAuthor,
    ModelAuthor,
    Reflecting,
    author_of,
    component_prompt,
    usd_per_call,
)
from kept.core.ports import Proposer
from kept.errors import SetupError
from kept.models.prompts import prompt

_SHAPES = {
    **{name: name for name in ("temperature", "top_p", "max_tokens", "seed")},
    "reasoning_effort": "effort",
}
"""Setting names: litellm's, mapped to ours."""


@dataclass(frozen=True, slots=True)
class Writers:
    """All arguments of a call that concern authors of new texts."""

    adapter: Callable[..., Any] | None
    """`propose_new_texts` of the adapter."""
    custom: Callable[..., Any] | None
    lm: str | Callable[..., Any] | None
    terms: Terms
    """All arguments of the call; read for its limits on cost."""
    settings: Mapping[str, Any] | None = None
    template: str | Mapping[str, str] | None = None
    guidance: Mapping[str, str] = field(default_factory=dict[str, str])
    told: str = field(default_factory=partial(prompt, "component"))

    def proposers(self, model: Reflecting) -> list[Proposer]:
        """One proposer per author, taking turns; copies of `model` that differ in their author."""
        found = [replace(model, author=author, name=name) for name, author in self._authors(model)]
        if not found:
            message = "nobody writes new texts: the adapter has no `propose_new_texts`"
            hint = "give `reflection_lm`, or `custom_candidate_proposer`"
            raise SetupError(message, hint=hint)
        return cast("list[Proposer]", found)

    def _authors(self, model: Reflecting) -> Iterator[tuple[str, Author]]:
        if self.adapter is not None and self.custom is not None:
            hint = "use one of them"
            message = "both the adapter and `custom_candidate_proposer` write new texts"
            raise SetupError(message, hint=hint)
        own = self.adapter or self.custom
        if own is not None:
            author = FunctionAuthor(own, usd_per_call(self.terms))
            yield "adapter" if self.adapter else "custom", author
        if self.lm is not None:
            yield "reflect", self._model(model.components)
        elif self.template is not None:
            hint = "give `reflection_lm` too, or leave it out"
            raise SetupError("`reflection_prompt_template` is for a `reflection_lm`", hint=hint)

    def _model(self, components: tuple[str, ...]) -> ModelAuthor:
        templates = _templates(self.template, components)
        if self.settings and not isinstance(self.lm, str):
            hint = "put them into the function"
            raise SetupError("`reflection_lm_kwargs` are for a model that is named", hint=hint)
        assert self.lm is not None
        given = self.settings or {}
        strange = sorted(given.keys() - _SHAPES.keys())
        if strange:
            hint = f"there are {', '.join(_SHAPES)}; or pass a function as `reflection_lm`"
            raise SetupError(f"`reflection_lm_kwargs` has `{strange[0]}`", hint=hint)
        shaped = {_SHAPES[name]: value for name, value in given.items()}
        author = author_of(self.lm, self.terms, shaped)
        return replace(author, templates=templates, guidance=self.guidance, told=self.told)


def writers_of(
    terms: Terms, adapter: Callable[..., Any] | None, guidance: Mapping[str, str] | None = None
) -> Writers:
    """Collect the arguments that concern authors."""
    template = terms.get("reflection_prompt_template")
    if isinstance(template, str) and "prompts" in terms:
        hint = "each stands for Kept's own prompt: give one of them"
        raise SetupError("`prompts` and `reflection_prompt_template` are given", hint=hint)
    return Writers(
        adapter,
        terms.get("custom_candidate_proposer"),
        terms.get("reflection_lm"),
        terms,
        terms.get("reflection_lm_kwargs"),
        template,
        guidance or {},
        component_prompt(terms, asked=terms.get("reflection_lm") is not None),
    )


def _templates(
    given: str | Mapping[str, str] | None, components: tuple[str, ...]
) -> dict[str, str]:
    if given is None:
        return {}
    found = {"": given} if isinstance(given, str) else dict(given)
    for name, text in found.items():
        if name and name not in components:
            hint = f"there are {', '.join(components)}"
            raise SetupError(f"`reflection_prompt_template` names `{name}`", hint=hint)
        for place in ("<curr_param>", "<side_info>"):
            if place not in text:
                hint = "write it where the text, or the records, are to stand"
                raise SetupError(f"`reflection_prompt_template` has no {place}", hint=hint)
    return found
