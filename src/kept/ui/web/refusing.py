"""What these pages refuse to do, with the status that says so."""

from kept.errors import KeptError


class Refused(KeptError):
    """Something that was asked and is not done."""

    def __init__(self, status: int, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status
