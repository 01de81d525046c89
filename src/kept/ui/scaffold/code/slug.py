"""Titles as parts of an address."""


def slug(title: str) -> str:
    """A title in lower case, with hyphens for blanks."""
    return title.lower().replace(" ", "-")
