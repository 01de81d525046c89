"""Taking a run's best over into the source: the only place that changes a file that was there.

Refuses a source that is not what the run started from, and changes all files or none.
"""

from kept.ui.commit import Repository
from kept.ui.source import Adoption, adoption_of

__all__ = ["Adoption", "Repository", "adoption_of"]
