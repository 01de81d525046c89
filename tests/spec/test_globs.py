"""Patterns of paths: what they match, and where they do not look."""

from pathlib import Path

import pytest

from kept.spec.paths import glob, is_excluded

FILES = (
    *("a.md", "b.txt", ".hidden.md", "sub/c.md", "sub/deep/d.md", "sub/deep/er/e.md"),
    *(".git/x.md", ".kept/x.md", ".venv/x.md", "node_modules/p/x.md", "sub/__pycache__/x.md"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to("sub")
    return tmp_path


def files(folder: Path, pattern: str, *exclude: str) -> list[str]:
    hits = glob(folder, pattern, exclude)
    return sorted(str(hit.relative_to(folder)) for hit in hits if hit.is_file())


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a.md", ["a.md"]),
        ("*.md", [".hidden.md", "a.md"]),
        ("?.*", ["a.md", "b.txt"]),
        ("[ab].md", ["a.md"]),
        ("sub/*", ["sub/c.md"]),
        ("sub/**", ["sub/c.md", "sub/deep/d.md", "sub/deep/er/e.md"]),
        ("sub/**/*.md", ["sub/c.md", "sub/deep/d.md", "sub/deep/er/e.md"]),
        ("**/d.md", ["sub/deep/d.md"]),
        ("**/deep/**/*.md", ["sub/deep/d.md", "sub/deep/er/e.md"]),
        ("*/c.md", ["link/c.md", "sub/c.md"]),
        ("link/c.md", ["link/c.md"]),
        ("./a.md", ["a.md"]),
        ("node_modules/**/*.md", ["node_modules/p/x.md"]),
        (".venv/*", [".venv/x.md"]),
        (".git/x.md", []),
        (".kept/**", []),
        ("nothing/*", []),
        ("a.md/*", []),
    ],
)
def test_a_pattern_matches(pattern: str, names: list[str], folder: Path):
    assert files(folder, pattern) == names


def test_what_is_excluded_is_not_entered(folder: Path):
    assert files(folder, "**/*.md", "sub/**") == [".hidden.md", "a.md"]
    assert files(folder, "**/*.md", "sub/deep") == [".hidden.md", "a.md", "sub/c.md"]


@pytest.mark.parametrize("pattern", ["a**", "**b/c", "", ".", "/"])
def test_what_is_no_pattern_is_refused(pattern: str, folder: Path):
    with pytest.raises(ValueError, match=r"empty|entire part"):
        glob(folder, pattern)


@pytest.mark.parametrize(
    ("path", "pattern", "excluded"),
    [
        ("sub/c.md", "sub", True),
        ("sub/c.md", "sub/**", True),
        ("sub/c.md", "**/c.md", True),
        ("sub/c.md", "*.md", False),
        ("sub/deep/d.md", "**/deep", True),
        ("subs/c.md", "sub", False),
    ],
)
def test_a_folder_that_is_excluded_excludes_what_is_in_it(path: str, pattern: str, excluded: bool):
    assert is_excluded(path, [pattern]) is excluded
