"""Titles as parts of an address."""

import re


def slug(title: str) -> str:
    """A title in lower case, with one hyphen for whatever is no letter or digit."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
