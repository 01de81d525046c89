import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("mcp", "anyio", "pypdf", "docx", "pptx", "openpyxl", "lxml", "jsonschema_rs", "aiohttp")


@pytest.mark.slow
def test_tools_and_documents_load_their_libraries_when_they_are_first_used(tmp_path: Path):
    script = (
        "import sys\n"
        "from kept.evaluators.tools import documents, function, mcp\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
