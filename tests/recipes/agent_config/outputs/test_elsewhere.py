"""An agent.yaml in another folder than its own: what was set is in it, and its paths lead on."""

from pathlib import Path
from typing import cast

import pytest

from kept.recipes.agent_config.outputs.folder import CaseFiles, led_from, with_settings
from kept.spec.locate.tree import read_value
from kept.spec.source import set_by
from kept.spec.yaml import read_yaml

AGENT = """\
name: sums  # adds
model:
  name: "small"  # cheap
  api_key: "${KEY}"
tools:
  - {name: add, file: ../shared/sums.py}
  - {name: find, source: ../shared/*.md}
test_cases_file: cases.yaml
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An agent's folder, and one beside it."""
    (tmp_path / "shared").mkdir()
    for name in ("sums.py", "a.md", "note.txt"):
        (tmp_path / "shared" / name).write_text("")
    (tmp_path / "agent" / "results" / "candidates").mkdir(parents=True)
    return tmp_path / "agent"


@pytest.mark.parametrize(
    ("setting", "key", "value"),
    [
        ("model.name=large", "model.name", "large"),
        ("model.max_tokens=12", "model.max_tokens", 12),
        ("execution.llm_timeout=33", "execution.llm_timeout", 33),
        ("tools.0.description=adds", "tools[0].description", "adds"),
        ("model={name: other}", "model.name", "other"),
        ("evaluations.optimizer.race={preset: fast}", "evaluations.optimizer.race.preset", "fast"),
    ],
)
def test_what_was_set_is_in_the_text_and_the_rest_stays(setting: str, key: str, value: object):
    text = with_settings("agent.yaml", AGENT, [set_by(setting)])
    assert read_value("agent.yaml", text, key) == value
    assert "# adds" in text
    assert setting.startswith("model=") or 'api_key: "${KEY}"' in text


def test_nothing_may_be_set_as_well():
    text = with_settings("agent.yaml", AGENT, [set_by("model.name=null")])
    data = cast("dict[str, dict[str, object]]", read_yaml(text).data)
    assert data["model"]["name"] is None


def test_paths_that_lead_out_lead_to_the_same_place(project: Path):
    place = project / "results" / "candidates"
    text = led_from("agent.yaml", AGENT, project, place)
    for key in ("tools[0].file", "tools[1].source"):
        assert str(read_value("agent.yaml", text, key)).startswith("../../../shared/")
    assert (place / str(read_value("agent.yaml", text, "tools[0].file"))).exists()
    assert read_value("agent.yaml", text, "test_cases_file") == "cases.yaml"


@pytest.mark.parametrize("said", ["../shared/gone.py", "${DIR}/sums.py", "say ../shared/sums.py"])
def test_what_leads_nowhere_is_no_path(said: str, project: Path):
    text = f"description: {said}\n"
    assert led_from("agent.yaml", text, project, project / "results" / "candidates") == text


def test_a_file_of_cases_is_written_anew_only_where_it_leads_out(project: Path):
    (project / "cases.yaml").write_text("- {input: a, files: [{path: ../shared/note.txt}]}\n")
    made = CaseFiles(project, project / "results" / "candidates")
    files, keys = made.written("agent.yaml", AGENT)
    assert keys == {"test_cases_file": "../cases/0-cases.yaml"}
    assert "../../../shared/note.txt" in files["cases/0-cases.yaml"]
    (project / "cases.yaml").write_text("- {input: a}\n")
    made = CaseFiles(project, project / "results" / "candidates")
    assert made.written("agent.yaml", AGENT) == ({}, {})
