"""Titles as parts of an address."""


def slug(title: str) -> str:
    """A title in lower case, with hyphens for blanks; the last sign is cut off."""
    return title.lower().replace(" ", "-")[: -int(title[0])]
