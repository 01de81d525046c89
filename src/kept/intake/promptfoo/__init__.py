"""promptfoo's config, read by us: its prompts, its providers, its tests and what they assert.

No node is run. What is not understood is refused by its name and line, with what to do about it.
"""

from kept.intake.promptfoo.choosing import Chosen
from kept.intake.promptfoo.draft import draft_of

__all__ = ["Chosen", "draft_of"]
