"""What a run came to, told from its journal: a summary, a page, a document.

Pure functions of a `kept.store.reader.Run`. Nothing here is a record of its own: `report.md` is a
view, and is written anew whenever it is asked for.
"""

from kept.report.document import as_json, headline
from kept.report.page import markdown
from kept.report.summary import Summary, summary
from kept.report.write import write_report

__all__ = ["Summary", "as_json", "headline", "markdown", "summary", "write_report"]
