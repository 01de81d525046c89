"""Why a template cannot be read or filled in."""


class TemplateFault(ValueError):
    """A template that is wrong, or asks for more than is offered here."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line
        """Of the template, from 1; 0 where it is not known."""
