"""Templates as users of promptfoo write them: the common part of nunjucks, and no code.

Values are those of JSON. A template can read them, choose and repeat; it calls no method, reaches
no attribute and takes a bounded number of steps, so that one which a proposer wrote does no harm.
What is beyond that is refused by its name, never passed over.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from kept.evaluators.templates.evaluate import Page
from kept.evaluators.templates.fault import TemplateFault
from kept.evaluators.templates.filters import MOST
from kept.evaluators.templates.names import names_in
from kept.evaluators.templates.parse import parse

__all__ = ["MOST", "TemplateFault", "is_template", "names_of", "render"]


def render(text: str, values: Mapping[str, object]) -> str:
    """The text with its values in place; raises `TemplateFault`. What is not there is empty."""
    with _faults():
        return Page(dict(values)).write(parse(text))


def names_of(text: str) -> tuple[str, ...]:
    """The values that a template asks for, in their order; raises `TemplateFault`."""
    with _faults():
        return tuple(dict.fromkeys(names_in(parse(text))))


def is_template(text: str) -> bool:
    """Whether a text has anything to be filled in."""
    return "{{" in text or "{%" in text


@contextmanager
def _faults() -> Generator[None]:
    """Whatever a template trips over, it is the template that does."""
    try:
        yield
    except TemplateFault:
        raise
    except (RecursionError, MemoryError) as error:
        raise TemplateFault("the template is nested too deeply, or makes too much") from error
    except (ValueError, ArithmeticError) as error:
        raise TemplateFault(f"the template cannot be filled in: {error}") from error
