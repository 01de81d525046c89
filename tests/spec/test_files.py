import os
from pathlib import Path

import pytest

from kept.spec.paths import Alternative, read_alternatives, read_artifacts
from kept.spec.source import Source
from kept.spec.yaml import Document


def source(folder: Path) -> Source:
    return Source(folder / "task.yaml", Document({}))


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_md", ".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


def alternatives(
    folder: Path, patterns: list[str], artifacts: dict[str, str]
) -> tuple[Alternative, ...]:
    spec = source(folder)
    found = read_alternatives(spec, ("files",), patterns, artifacts)
    spec.check()
    return found


def complaint(folder: Path, patterns: list[str], artifacts: dict[str, str]) -> str:
    spec = source(folder)
    read_alternatives(spec, ("files",), patterns, artifacts)
    (problem,) = spec.problems
    return str(problem).split(": ", 1)[1]


def test_texts_keep_their_line_endings_and_marks(tmp_path: Path):
    write(tmp_path, a_md="\ufeffone\r\ntwo\rthree\n", b_md="")
    assert read_artifacts(source(tmp_path), ["*.md"], []) == {
        "a.md": "\ufeffone\r\ntwo\rthree\n",
        "b.md": "",
    }


@pytest.mark.parametrize(
    ("include", "exclude", "names"),
    [
        (["**/*.md"], [], ["a.md", "sub/b.md", "sub/deep/c.md"]),
        (["sub/**"], [], ["sub/b.md", "sub/deep/c.md"]),
        (["**/*"], ["sub/**"], ["a.md"]),
        (["**/*"], ["sub/deep"], ["a.md", "sub/b.md"]),
        (["**/*"], ["**/b.md"], ["a.md", "sub/deep/c.md"]),
        (["sub/b.md", "a.md", "*.md"], [], ["sub/b.md", "a.md"]),
    ],
)
def test_patterns_choose_files(
    include: list[str], exclude: list[str], names: list[str], tmp_path: Path
):
    write(tmp_path, a_md="a", sub__b_md="b", sub__deep__c_md="c")
    (tmp_path / ".kept" / "runs").mkdir(parents=True)
    (tmp_path / ".kept" / "runs" / "x.md").write_text("x")
    spec = source(tmp_path)
    assert list(read_artifacts(spec, include, exclude)) == names
    assert spec.problems == []


def test_a_link_inside_the_folder_is_read(tmp_path: Path):
    write(tmp_path, a_md="a")
    (tmp_path / "b.md").symlink_to("a.md")
    assert read_artifacts(source(tmp_path), ["b.md"], []) == {"b.md": "a"}


def test_a_file_stands_for_the_only_artifact_whatever_its_name(tmp_path: Path):
    write(tmp_path, alt__short_md="s", alt__long_md="l")
    assert alternatives(tmp_path, ["alt/*.md"], {"prompt.md": "p"}) == (
        Alternative("alt/long.md", {"prompt.md": "l"}),
        Alternative("alt/short.md", {"prompt.md": "s"}),
    )


def test_the_artifact_itself_is_no_alternative_and_nothing_counts_twice(tmp_path: Path):
    write(tmp_path, prompt_md="p", other_md="o")
    found = alternatives(tmp_path, ["other.md", "*.md"], {"prompt.md": "p"})
    assert [alternative.label for alternative in found] == ["other.md"]


def test_of_several_artifacts_a_file_stands_for_the_one_with_its_name(tmp_path: Path):
    write(tmp_path, x__a_md="1", y__b_md="2")
    artifacts = {"sub/a.md": "", "b.md": ""}
    assert alternatives(tmp_path, ["*/*.md"], artifacts) == (
        Alternative("x/a.md", {"sub/a.md": "1"}),
        Alternative("y/b.md", {"b.md": "2"}),
    )


def test_a_folder_stands_for_the_artifacts_below_it(tmp_path: Path):
    write(tmp_path, alt__one__sub__a_md="1", alt__one__b_md="2", alt__two__b_md="3")
    artifacts = {"sub/a.md": "", "b.md": ""}
    assert alternatives(tmp_path, ["alt/*"], artifacts) == (
        Alternative("alt/one", {"b.md": "2", "sub/a.md": "1"}),
        Alternative("alt/two", {"b.md": "3"}),
    )


def test_an_alternative_for_nothing_is_refused(tmp_path: Path):
    write(tmp_path, alt__c_md="c", dirs__one__c_md="c")
    (tmp_path / "empty" / "one").mkdir(parents=True)
    artifacts = {"a.md": "", "b.md": ""}
    assert complaint(tmp_path, ["alt/*.md"], artifacts).startswith(
        "`alt/c.md` stands for none of a.md, b.md (hint: name the file as the artifact"
    )
    spec = source(tmp_path)
    assert read_alternatives(spec, ("files",), ["dirs/*"], artifacts) == ()
    assert [p.message for p in spec.problems] == [
        "`dirs/one/c.md` has no artifact `c.md` to stand for",
        "the folder `dirs/one` holds no text of any artifact",
    ]
    assert complaint(tmp_path, ["empty/*"], artifacts) == (
        "the folder `empty/one` holds no text of any artifact"
    )


def test_an_alternative_for_two_artifacts_of_one_name_is_refused(tmp_path: Path):
    write(tmp_path, alt__a_md="1")
    assert complaint(tmp_path, ["alt/*.md"], {"x/a.md": "", "y/a.md": ""}) == (
        "`alt/a.md` may stand for any of x/a.md, y/a.md"
    )


def test_what_is_no_text_file_is_refused_by_name(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "latin.md").write_bytes("gr\u00fcn".encode("latin-1"))
    (tmp_path / "binary.md").write_bytes(b"a\0b")
    (tmp_path / "outside.md").symlink_to("/etc/hostname")
    (tmp_path / "nowhere.md").symlink_to("gone")
    spec = source(tmp_path)
    assert read_artifacts(spec, ["*.md"], []) == {}
    assert [problem.message for problem in spec.problems] == [
        "`binary.md` is binary",
        "`latin.md` is not UTF-8 text (line 1)",
        "cannot read `nowhere.md`: No such file or directory",
        "`outside.md` is a link that leaves the folder",
        "`pipe.md` is not a plain file",
    ]
