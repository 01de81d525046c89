"""The text of a file that somebody has."""

from pathlib import Path

from kept.errors import SetupError
from kept.spec.files import decoded, near_file
from kept.spec.source import shown


def text_of(path: Path, limited: bool = True) -> str:
    """It; a `SetupError` says why not. `limited` is for what is no data."""
    try:
        return decoded(path.read_bytes(), limited).removeprefix("\ufeff")
    except OSError as error:
        hint = near_file(path) if not path.exists() else None
        raise SetupError(f"cannot read {shown(path)}: {error.strerror}", hint=hint) from error
    except ValueError as error:
        csv = path.suffix == ".csv" and "UTF-8" in str(error)
        hint = "save it as `CSV UTF-8`, as spreadsheets call it" if csv else None
        raise SetupError(f"{shown(path)} is {error}", hint=hint) from error
