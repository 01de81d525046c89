"""A skill of a user's: a file, or a folder with whatever lies in one."""

from pathlib import Path

import pytest

from kept.core.case import Case, Cases
from kept.errors import SpecError
from kept.evaluators.environments.base import MAX_FILES, EnvSettings, skill_at
from kept.evaluators.environments.chat_student import ChatRunner
from kept.evaluators.environments.datasets import Parted
from kept.evaluators.environments.qa import SearchQa
from kept.evaluators.environments.registry import opened
from kept.testing import ScriptedModel

PICTURE = b"\x89PNG\r\n\x1a\n\x00\xff"


def write(folder: Path, **files: bytes) -> Path:
    given = {"SKILL.md": b"# Skill\r\n", **files}
    for name, data in given.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def settings(folder: Path) -> EnvSettings:
    return EnvSettings(name="searchqa", folder=folder, skill_init="skill")


def test_a_folder_is_read_with_its_references_and_scripts(tmp_path: Path):
    files = {"references/a.md": b"A.", "scripts/run.py": b"print()", "LICENSE": b"free"}
    found = skill_at(write(tmp_path, **files), settings(tmp_path))
    assert [*found.texts] == ["SKILL.md", "LICENSE", "references/a.md", "scripts/run.py"]
    assert found.texts["SKILL.md"] == "# Skill\r\n", "to the byte"
    assert not found.left_out


def test_what_only_lies_about_in_a_folder_is_no_part_of_the_skill(tmp_path: Path):
    """The cache of a script that was run once had the whole training refused."""
    about = {".git/config": b"x", ".DS_Store": PICTURE, "scripts/__pycache__/run.pyc": PICTURE}
    found = skill_at(write(tmp_path, **about), settings(tmp_path))
    assert [*found.texts] == ["SKILL.md"] and not found.left_out


def test_a_file_that_is_no_text_is_left_out_and_named(tmp_path: Path):
    write(tmp_path / "skill", **{"assets/form.png": PICTURE})
    case = Case("c", {"question": "Who?", "answers": ["Ann"]})
    parted = Parted(Cases((case,), (Case("d", {"question": "Why?", "answers": ["So"]}),), ()))
    student = ChatRunner(SearchQa(), ScriptedModel(()))
    made = opened(SearchQa(), settings(tmp_path), parted, lambda _: student)
    assert [*made.skill] == ["SKILL.md"]
    assert made.ignored == (
        "`assets/form.png` of the skill is no text: who works by the skill does not see it",
    )


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"SKILL.md": PICTURE}, "it is no UTF-8 text"),
        ({f"f{n}.md": b"" for n in range(MAX_FILES)}, f"has {MAX_FILES + 1} files"),
    ],
)
def test_what_is_no_skill_is_refused(tmp_path: Path, files: dict[str, bytes], told: str):
    with pytest.raises(SpecError, match=told):
        skill_at(write(tmp_path, **files), settings(tmp_path))
    with pytest.raises(SpecError, match="there is no skill in"):
        skill_at(tmp_path.parent, settings(tmp_path))
