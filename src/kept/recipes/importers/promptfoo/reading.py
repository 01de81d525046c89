"""A config brought into one form, with the files of tests that it names."""

from dataclasses import dataclass, field
from typing import Any, cast

from kept.evaluators.scorers.assertions.python import FILE
from kept.recipes.importers.promptfoo.config import (
    CONFIG_REFUSED,
    ConfigSpec,
    Grader,
    ProviderSpec,
    TestSpec,
    as_list,
    mapping_of,
    prepare_test,
    refuse,
    resolve,
)
from kept.recipes.importers.promptfoo.files import found_files, plain, read_file, read_values
from kept.recipes.importers.promptfoo.tests import Placed, Tests, read_tests
from kept.spec.load import section, validate
from kept.spec.source import Source
from kept.spec.yaml import Document, YamlFault


@dataclass
class ReadConfig:
    """A config, being read."""

    source: Source
    config: ConfigSpec = field(default_factory=ConfigSpec)
    """Without anything in it where something is wrong."""
    providers: list[tuple[int, ProviderSpec]] = field(
        default_factory=list[tuple[int, ProviderSpec]]
    )
    """Those that are right in themselves, with their places."""
    default: TestSpec = field(default_factory=TestSpec)
    tests: list[Placed] = field(default_factory=list[Placed])
    graders: list[tuple[Source, Grader]] = field(default_factory=list[tuple[Source, Grader]])
    sources: list[Source] = field(default_factory=list[Source])

    def take(self, tests: Tests) -> None:
        """With the tests of a file."""
        self.tests += tests.placed
        self.graders += tests.graders
        self.sources += tests.sources

    def check(self) -> None:
        """Raise what is wrong with the config and its files, all of it."""
        told = list(self.source.problems)
        for one in self.sources:
            told += one.problems
        if told:
            first = Source(self.source.path, Document(None))
            first.problems = told
            first.check()


def read_config(source: Source) -> ReadConfig:
    """A config brought into one form, and the files of tests that it names."""
    resolve(source)
    source.data = plain(source.data)
    data = cast("dict[str, Any]", source.data)
    for key in [key for key in data if data[key] is None or key.startswith(("$", "x-"))]:
        del data[key]
    refuse(source, (), data, CONFIG_REFUSED)
    read = ReadConfig(source)
    if "targets" in data and "providers" not in data:
        data["providers"] = data.pop("targets")
    data["prompts"] = as_list(data.get("prompts"))
    data["providers"] = [provider_of(one) for one in as_list(data.get("providers"))]
    _take_default(source, data)
    _take_tests(read, data)
    for grader in prepare_test(source, ("defaultTest",), data.get("defaultTest")):
        read.graders.append((source, grader))
    read.config = validate(source, ConfigSpec) or read.config
    _take_right(read, data)
    return read


def _take_tests(read: ReadConfig, data: dict[str, Any]) -> None:
    """The tests of files, and nothing in their places."""
    tests = as_list(data.get("tests"))
    if not tests:
        why = "cases are what tells a better prompt from a worse"
        read.source.report(("tests",), "missing", why)
    for number, test in enumerate(tests):
        if mapping_of(test) is not None:
            for grader in prepare_test(read.source, ("tests", number), test):
                read.graders.append((read.source, grader))
        else:
            loc = ("tests", number) if isinstance(data["tests"], list) else ("tests",)
            read.take(read_tests(read.source, loc, test))
    data["tests"] = [test if mapping_of(test) is not None else None for test in tests]


def _take_right(read: ReadConfig, data: dict[str, Any]) -> None:
    """What is right is looked into although something else is wrong."""
    source = read.source
    read.default = section(source, ("defaultTest",), TestSpec) or read.default
    for number in range(len(data["providers"])):
        provider = section(source, ("providers", number), ProviderSpec)
        if provider is not None:
            read.providers.append((number, provider))
    inline: list[Placed] = []
    for number, given in enumerate(data["tests"]):
        spec = section(source, ("tests", number), TestSpec) if given is not None else None
        if spec is not None:
            inline.append(Placed(spec, source, ("tests", number)))
    read.tests = [*inline, *read.tests]


def _take_default(source: Source, data: dict[str, Any]) -> None:
    """What all tests have in common, out of its file where it names one."""
    name = data.get("defaultTest")
    if not isinstance(name, str):
        return
    files = found_files(source, ("defaultTest",), name.removeprefix(FILE))
    text = read_file(source, ("defaultTest",), files[0]) if files else None
    data["defaultTest"] = {}
    if text is not None:
        try:
            data["defaultTest"] = read_values(text).data
        except YamlFault as fault:
            source.report(("defaultTest",), f"line {fault.line} is not YAML: {fault.message}")


def provider_of(given: object) -> object:
    """A text, or a mapping by the id, as a mapping with an `id`."""
    if isinstance(given, str):
        return {"id": given}
    if isinstance(given, dict):
        said = cast("dict[str, Any]", given)
        if "id" not in said and len(said) == 1:
            (id_, more), *_ = said.items()
            rest = cast("dict[str, Any]", more) if isinstance(more, dict) else {}
            return {"id": id_, **rest}
        if said.get("config") is None:
            said.pop("config", None)
        return said
    return given
