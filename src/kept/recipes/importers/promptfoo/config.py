"""Schema of promptfooconfig.yaml, with the keys that are refused."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from kept.core.untyped import is_dict, is_list, list_in
from kept.evaluators.scorers.assertions.spec import AssertionSpec
from kept.spec.source import Source
from kept.spec.validate import Count, Finite, SpecModel, Text, Texts
from kept.spec.yaml import Loc

Refused = Mapping[str, str]

CONFIG_REFUSED: Refused = {
    "scenarios": "write each combination as a test; variables that are lists are multiplied out",
    "extensions": "hooks are not run here; do what they do before, and write the result down",
    "nunjucksFilters": "filters in JavaScript are not run here; put the value into a variable",
    "derivedMetrics": "name a `metric` at the assertions, and make it the objective of the task",
    "env": "set variables where Kept is started: what is in a file is read by others",
    "redteam": "red teaming is another thing than improving a prompt",
    "tracing": "traces of other programs are not read here",
}
TEST_REFUSED: Refused = {
    "provider": "one model is asked about all tests; choose it with `provider`",
    "providers": "one model is asked about all tests; choose it with `provider`",
    "prompts": "every prompt is tried on all tests; split the config",
    "providerOutput": "an answer that is there already measures no prompt",
    "assertScoringFunction": "give the assertions weights instead",
}
OPTIONS_REFUSED: Refused = {
    "transform": "let a `python` assertion look at the part of the output that matters",
    "postprocess": "let a `python` assertion look at the part of the output that matters",
    "transformVars": "write the variables as the prompt is to see them",
    "prefix": "write it into the prompt, as a variable if tests differ in it",
    "suffix": "write it into the prompt, as a variable if tests differ in it",
    "rubricPrompt": "the questions to judges are Kept's own; say what matters in the rubric",
    "storeOutputAs": "tests do not hear of one another",
}
ASSERTION_REFUSED: Refused = {
    "transform": "let a `python` assertion look at the part of the output that matters",
    "contextTransform": "let a `python` assertion look at the part of the output that matters",
    "rubricPrompt": "the questions to judges are Kept's own; say what matters in the rubric",
}


class ProviderConfig(SpecModel):
    """Settings of requests to a model."""

    temperature: Annotated[Finite, Field(ge=0)] | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    top_p: Annotated[Finite, Field(gt=0, le=1)] | None = None
    seed: int | None = None
    reasoning_effort: Text | None = None
    apiBaseUrl: Text | None = None
    apiHost: Text | None = None
    apiKeyEnvar: Any = None
    """This and the next fields may hold a secret key: problems are reported without values."""
    apiKey: Any = None
    apiVersion: Text | None = None
    url: Text | None = None
    """Address of an `https` provider; it goes with the four fields below."""
    method: Text | None = None
    headers: dict[str, Any] = Field(default_factory=dict[str, Any])
    body: Any = None
    transformResponse: Text | None = None


class ProviderSpec(SpecModel):
    """A provider: one model."""

    id: Text
    label: Text | None = None
    config: ProviderConfig = ProviderConfig()
    prompts: Texts | None = None
    """Labels of the prompts with which it is asked."""
    delay: Finite | None = None


class OptionsSpec(SpecModel):
    """Options of a test."""

    disableVarExpansion: bool = False
    disableDefaultAsserts: bool = False
    runSerially: bool = False


class TestSpec(SpecModel):
    """One test."""

    description: str | None = None
    vars: Any = None
    assert_: Annotated[tuple[AssertionSpec, ...], Field(alias="assert", strict=False)] = ()
    threshold: Finite | None = None
    metadata: dict[str, Any] = Field(default_factory=dict[str, Any])
    options: OptionsSpec = OptionsSpec()


class EvaluateOptions(SpecModel):
    """Options of promptfoo runs; only `maxConcurrency` is imported."""

    maxConcurrency: Count | None = None
    repeat: Count | None = None
    delay: Finite | None = None
    showProgressBar: bool | None = None
    cache: bool | None = None
    timeoutMs: Finite | None = None
    maxEvalTimeMs: Finite | None = None


class ConfigSpec(SpecModel):
    """A whole config, with its lists normalized."""

    description: str | None = None
    prompts: Annotated[tuple[Any, ...], Field(strict=False)] = ()
    providers: Annotated[tuple[ProviderSpec, ...], Field(strict=False)] = ()
    tests: Annotated[tuple[TestSpec | None, ...], Field(strict=False)] = ()
    """Inline tests; None in the place of a file."""
    defaultTest: TestSpec = TestSpec()
    evaluateOptions: EvaluateOptions = EvaluateOptions()
    # keys that mean nothing for a run
    tags: Any = None
    metadata: Any = None
    outputPath: Any = None
    sharing: Any = None
    commandLineOptions: Any = None
    writeLatestResults: Any = None
    assertionTemplates: Any = None


class TestsFile(SpecModel):
    """The tests of a file."""

    tests: Annotated[tuple[TestSpec, ...], Field(strict=False)] = ()


def refuse(source: Source, loc: Loc, given: object, table: Refused) -> None:
    """Report the keys of a mapping that are not supported, and remove them."""
    if not is_dict(given):
        return
    for key in [key for key in given if key in table]:
        source.report((*loc, key), "is not supported", table[key])
        del given[key]


def as_list(value: object) -> list[object]:
    """Return a value as a list: a single value is a list of one."""
    if value is None:
        return []
    return value if is_list(value) else [value]


class Grader(NamedTuple):
    """Provider that is named to grade, and its place."""

    loc: Loc
    provider: object


def mapping_of(value: object) -> dict[str, Any] | None:
    """Return a value if it is a mapping, else None."""
    return value if is_dict(value) else None


def prepare_test(source: Source, loc: Loc, given: object) -> list[Grader]:
    """Remove refused keys and graders from a test; returns the graders."""
    refuse(source, loc, given, TEST_REFUSED)
    if not is_dict(given):
        return []
    # an empty key counts as missing
    for key in [key for key, value in given.items() if value is None]:
        del given[key]
    refuse(source, (*loc, "options"), given.get("options"), OPTIONS_REFUSED)
    found: list[Grader] = []
    options = given.get("options")
    if is_dict(options) and "provider" in options:
        found.append(Grader((*loc, "options", "provider"), options.pop("provider")))
    return [*found, *_prepare_assertions(source, (*loc, "assert"), given.get("assert"))]


def _prepare_assertions(source: Source, loc: Loc, given: object) -> Iterator[Grader]:
    rows = list_in(given)
    for number, one in enumerate(rows):
        here = (*loc, number)
        refuse(source, here, one, ASSERTION_REFUSED)
        if is_dict(one):
            if "provider" in one:
                yield Grader((*here, "provider"), one.pop("provider"))
            yield from _prepare_assertions(source, (*here, "assert"), one.get("assert"))


def resolve(source: Source) -> None:
    """Replace each `$ref` by the value to which it points inside a config."""

    def at(value: Any, loc: Loc) -> Any:  # noqa: ANN401 # whatever a file may say
        if is_dict(value):
            if "$ref" in value:
                return pointed(str(value["$ref"]), loc)
            return {key: at(one, (*loc, key)) for key, one in value.items()}
        if is_list(value):
            return [at(one, (*loc, n)) for n, one in enumerate(value)]
        return value

    def pointed(to: str, loc: Loc) -> Any:  # noqa: ANN401 # see above
        found: Any = source.data
        try:
            assert to.startswith("#/")
            for part in to[2:].split("/"):
                found = found[part]
        except (AssertionError, LookupError, TypeError):
            source.report((*loc, "$ref"), f"`{to}` points to nothing in this file")
            return None
        return found

    source.data = at(source.data, ())
