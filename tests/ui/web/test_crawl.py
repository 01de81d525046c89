"""Every page that a link leads to: it is there, it keeps to the policy, and it tells no secret."""

import html
import re
from pathlib import Path

import pytest

from kept.core.plan import FUNCTION
from kept.recipes.registry import RECIPES
from kept.ui.web.server import export
from tests.ui.web.asking import Site

pytestmark = pytest.mark.slow

SECRET = "sk-very-secret-key"
MOST = 220
INLINE = re.compile(r"""<[^>]*\s(?:style|on\w+)\s*=|<script(?![^>]*\ssrc=)|javascript:""", re.I)


def test_every_link_leads_to_a_page_that_keeps_to_the_policy(site: Site):
    seen: set[str] = set()
    waiting = ["/", "/?q=x", "/compare", "/settings", "/experiments", "/prompts"]
    while waiting and len(seen) < MOST:
        path = waiting.pop(0)
        if path in seen:
            continue
        seen.add(path)
        reply = site.get(path)
        assert reply.status == 200, path
        assert SECRET not in reply.text, path
        assert not INLINE.search(re.sub(r"<pre>.*?</pre>", "", reply.text, flags=re.S)), path
        found = [html.unescape(link) for link in re.findall(r'(?:href|src)="([^"]*)"', reply.text)]
        outside = [link for link in found if not link.startswith(("/", "#", "data:", "?"))]
        assert not outside, path
        # of many steps and cells alike some will do
        links = [link.partition("#")[0] for link in found if link.startswith("/runs/")]
        waiting += [link for link in dict.fromkeys(links) if link not in seen][:12]
    assert len(seen) > 100
    assert {"cases", "numbers"} <= {path.rpartition("/")[2].partition("?")[0] for path in seen}


def test_a_run_of_every_kind_becomes_one_file_without_script(project: Path):
    kinds: set[str] = set()
    for folder in (project / ".kept" / "runs").iterdir():
        text = export(folder)
        kinds.add(re.findall(r'"recipe":"([^"]+)"', (folder / "journal.jsonl").read_text())[0])
        assert "<script" not in text and SECRET not in text
        assert "Content-Security-Policy" in text and "<style>" in text
        links = re.findall(r'href="([^"]*)"', text)
        assert all(link.startswith(("#", "data:")) for link in links)
        places = set(re.findall(r'id="([^"]*)"', text))
        assert {link[1:] for link in links if link.startswith("#")} <= places
    every = set(RECIPES) - {FUNCTION}
    assert kinds == every
