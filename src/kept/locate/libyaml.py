"""YAML taken apart by libyaml, which is ten times as fast as ruamel.yaml, and by ruamel's rules.

Both say where everything stands, and say the same but for what is disputed.
"""

import re
from typing import Any, cast

import yaml
from ruamel.yaml.nodes import ScalarNode

STRING = "tag:yaml.org,2002:str"

_DISPUTED = re.compile("[\t\x85\u2028\u2029\ufeff]|^%", re.MULTILINE)
"""What the two libraries may take apart differently: other ends of lines, tabs, versions."""


def can_take(text: str) -> bool:
    """Whether libyaml is there, and both libraries agree on how to take a text apart."""
    return yaml.__with_libyaml__ and not _DISPUTED.search(text)


def parser_of(text: str, resolver: Any) -> Any:  # noqa: ANN401 # the libraries have no types
    """The parser of libyaml on a text, with ruamel's idea of which words are numbers."""
    base: Any = cast("Any", yaml.cyaml).CParser
    known: dict[str, str] = {}

    class Parser(base):
        def resolve(self, kind: type, value: str, implicit: tuple[bool, bool]) -> str:
            if kind is not yaml.ScalarNode:
                return "tag:yaml.org,2002:map"  # or a list: nobody asks
            if not implicit[0]:
                return STRING
            if value not in known:
                known[value] = str(resolver.resolve(ScalarNode, value, implicit))
            return known[value]

        def descend_resolver(self, *_: object) -> None: ...

        def ascend_resolver(self) -> None: ...

    return cast("Any", Parser(text))
