"""What a word means: a file, a folder, a revision; and what is said of one that means nothing."""

import subprocess
from pathlib import Path

import pytest

from kept.errors import SetupError
from kept.recipes.compare.compile import read_version
from kept.recipes.task.inputs import ReadTask, read_task
from kept.spec.source import read_source

pytestmark = pytest.mark.git

SPEC = """
artifacts: {include: [INCLUDE], exclude: ["**/old.md"]}
runner: {command: "true"}
scorer: {command: "true"}
objective: {primary_metric: score, direction: maximize}
budget: {max_iterations: 1}
"""


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def task_in(folder: Path, include: str, files: dict[str, str]) -> ReadTask:
    write(folder, {**files, "task.yaml": SPEC.replace("INCLUDE", include)})
    return read_task(read_source(folder / "task.yaml"), proposes=False)


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    command = ["git", *identity, "-C", str(folder), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, files: dict[str, str], message: str = "change") -> str:
    write(folder, files)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", message)
    return git(folder, "rev-parse", "HEAD")


def test_a_file_stands_for_the_only_artifact(tmp_path: Path):
    task = task_in(tmp_path, "prompt.md", {"prompt.md": "now", "other/new.txt": "new"})
    assert read_version("other/new.txt", tmp_path, task).texts == {"prompt.md": "new"}
    assert read_version("prompt.md", tmp_path, task).texts == {"prompt.md": "now"}


def test_a_file_stands_for_the_artifact_of_its_name_and_the_others_stay(tmp_path: Path):
    files = {"p/a.md": "a", "p/b.md": "b", "drafts/b.md": "b2", "drafts/x.md": "x"}
    task = task_in(tmp_path, "p/*.md", files)
    assert read_version("drafts/b.md", tmp_path, task).texts == {"p/a.md": "a", "p/b.md": "b2"}
    with pytest.raises(SetupError, match=r"`drafts/x.md` stands for none of p/a.md, p/b.md"):
        read_version("drafts/x.md", tmp_path, task)


def test_a_file_that_two_artifacts_are_called_by_is_not_guessed_at(tmp_path: Path):
    files = {"x/a.md": "1", "y/a.md": "2", "new/a.md": "3"}
    task = task_in(tmp_path, "'[xy]/*.md'", files)
    with pytest.raises(SetupError, match=r"may stand for any of x/a.md, y/a.md"):
        read_version("new/a.md", tmp_path, task)
    assert read_version("y/a.md", tmp_path, task).texts == {"x/a.md": "1", "y/a.md": "2"}


def test_in_a_folder_the_patterns_of_the_task_are_looked_for(tmp_path: Path):
    files = {"p/a.md": "a", "b/p/a.md": "a2", "b/p/old.md": "no", "b/p/a.txt": "no", "b/c.md": ""}
    task = task_in(tmp_path, "p/*.md", files)
    assert read_version("b", tmp_path, task).texts == {"p/a.md": "a2"}
    assert read_version(".", tmp_path, task).texts == {"p/a.md": "a"}


def test_a_folder_may_also_stand_for_the_one_that_all_artifacts_are_in(tmp_path: Path):
    files = {"p/a.md": "a", "p/s/b.md": "b", "draft/a.md": "a2", "draft/s/b.md": "b2"}
    task = task_in(tmp_path, "p/**/*.md", files)
    wanted = {"p/a.md": "a2", "p/s/b.md": "b2"}
    assert read_version("draft/", tmp_path, task).texts == wanted


def test_a_folder_without_any_artifact_is_refused(tmp_path: Path):
    task = task_in(tmp_path, "prompt.md", {"prompt.md": "now", "b/readme.txt": "x"})
    with pytest.raises(
        SetupError, match=r"`b` holds no artifact: nothing in it matches `prompt.md`"
    ):
        read_version("b", tmp_path, task)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"a\0b", "binary"),
        (b"a\n\xff", r"not UTF-8 text \(line 2\)"),
        (b"x" * (2**20 + 1), "too large: 1.0 MiB, 1 MiB allowed"),
    ],
)
def test_what_is_no_text_is_refused(data: bytes, what: str, tmp_path: Path):
    task = task_in(tmp_path, "prompt.md", {"prompt.md": "now"})
    (tmp_path / "b.md").write_bytes(data)
    with pytest.raises(SetupError, match=f"`b.md` is {what}"):
        read_version("b.md", tmp_path, task)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A task in a folder of a repository, with two versions of its files."""
    git(tmp_path, "init", "-q", "-b", "main")
    commit(tmp_path, {"sub/p/a.md": "one", "sub/p/b.md": "b", "readme.md": "r"}, "fix: it")
    git(tmp_path, "tag", "v1")
    commit(tmp_path, {"sub/p/a.md": "two", "sub/p/old.md": "no"})
    return tmp_path


def task_of(repository: Path) -> ReadTask:
    return task_in(repository / "sub", "p/*.md", {"p/a.md": "not committed"})


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("HEAD", "two"),
        ("HEAD~1", "one"),
        ("v1", "one"),
        ("main", "two"),
        ("v1:sub", "one"),
        ("v1:sub/p/", "one"),
        ("v1:./p", "one"),
        ("HEAD:sub/p/a.md", "two"),
        ("v1:./p/a.md", "one"),
        ("HEAD^{/fix: it}", "one"),
        ("HEAD^{/fix: it}:./p/a.md", "one"),
    ],
)
def test_a_revision_is_read_as_it_was_committed(word: str, text: str, repository: Path):
    task = task_of(repository)
    version = read_version(word, repository / "sub", task)
    assert version.texts == {"p/a.md": text, "p/b.md": "b"}
    ref = "v1" if text == "one" else "main"
    assert version.commit == git(repository, "rev-parse", ref)
    assert version.label == f"{word} ({version.commit[:7]})"


def test_reading_a_revision_touches_nothing(repository: Path):
    task = task_of(repository)
    before = git(repository, "status", "--porcelain")
    read_version("HEAD~1", repository / "sub", task)
    assert git(repository, "status", "--porcelain") == before
    assert (repository / "sub/p/a.md").read_text() == "not committed"


def test_a_commit_by_its_id_is_called_just_that(repository: Path):
    id_ = git(repository, "rev-parse", "--short", "v1")
    assert read_version(id_, repository / "sub", task_of(repository)).label == id_


def test_a_revision_may_be_held_to_what_it_was_before(repository: Path):
    task = task_of(repository)
    old = git(repository, "rev-parse", "v1")
    assert read_version("HEAD", repository / "sub", task, old).texts["p/a.md"] == "one"
    assert read_version("HEAD:sub", repository, task, old).texts["p/a.md"] == "one"


def test_a_file_that_is_there_comes_before_a_revision_of_the_same_name(repository: Path):
    task = task_of(repository)
    write(repository / "sub", {"main/p/a.md": "a folder", "main/p/b.md": ""})
    assert read_version("main", repository / "sub", task).texts["p/a.md"] == "a folder"
    assert read_version("main:./", repository / "sub", task).texts["p/a.md"] == "two"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("gone.md", "`gone.md` is no file or folder here, and `gone.md` no revision of git"),
        ("v9:sub", "`v9:sub` is no file or folder here, and `v9` no revision of git"),
        ("v1:p/a.md", "`v1` has no `p/a.md`"),
        ("--output=x", "`--output=x` is no file or folder here"),
        ("v1:readme.md", "`v1:readme.md` stands for none of p/a.md, p/b.md"),
        ("v1:", "`v1:` holds no artifact"),
    ],
)
def test_a_word_that_means_nothing_is_told(word: str, message: str, repository: Path):
    task = task_of(repository)
    with pytest.raises(SetupError) as caught:
        read_version(word, repository / "sub", task)
    assert message in str(caught.value)


def test_links_and_submodules_of_a_revision_are_no_texts(repository: Path):
    (repository / "sub/p/link.md").symlink_to("a.md")
    commit(repository, {})
    task = task_of(repository)
    assert set(read_version("HEAD", repository / "sub", task).texts) == {"p/a.md", "p/b.md"}


def test_without_a_repository_a_revision_is_none(tmp_path: Path):
    task = task_in(tmp_path, "prompt.md", {"prompt.md": "now"})
    with pytest.raises(SetupError, match="`HEAD` no revision of git"):
        read_version("HEAD", tmp_path, task)
