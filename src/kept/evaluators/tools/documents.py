"""Files of people as what a model can be told: text, or pictures.

Everything is bounded: a file that is too large, or says too much, is refused in words. It takes as
long as it takes to parse, so whoever has an event loop calls it in a thread.
"""

from kept.evaluators.tools.reading import Document, Kind, kind_of, read_document
from kept.evaluators.tools.unreadable import Unreadable

__all__ = ["Document", "Kind", "Unreadable", "kind_of", "read_document"]
