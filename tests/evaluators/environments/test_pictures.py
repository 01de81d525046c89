"""Pictures of cases: found at load, checked at use, in their place in a request."""

import base64
from pathlib import Path

import pytest

from kept.core.llm import Image, Message, ModelRequest
from kept.errors import SetupError
from kept.evaluators.environments.base import Posed
from kept.evaluators.environments.datasets import Fields, Row
from kept.evaluators.environments.pictures import find_picture, load_picture, marked, picture_files
from kept.models.anthropic_messages import Messages
from kept.models.openai_chat import Chat
from kept.models.protocol import Habits
from tests.evaluators.environments.drawing import draw, page

ONE, TWO = Image("image/png", page("one")), Image("image/png", page("two"), "low")


def row(folder: Path) -> Row:
    return Row({}, folder / "rows.json", 1, 7)


def test_a_picture_is_found_below_the_root_beside_its_file_or_elsewhere(tmp_path: Path):
    root, other = tmp_path / "root", tmp_path / "other"
    draw(root / "a" / "x.png", "hello")
    beside = draw(tmp_path / "x.png", "beside")
    draw(other / "y.png", "other")
    fields = Fields()
    found = find_picture(fields, row(tmp_path), "a/x.png", root)
    assert found is not None and not fields.problems
    assert found["path"] == "a/x.png" and len(found["sha256"]) == 16
    assert load_picture(found, root).data == page("hello")
    assert load_picture(found, root, "low").detail == "low"
    assert load_picture(found, root).detail is None
    # as a generated split has it, wherever that lies
    assert find_picture(fields, row(other), dict(found), root) == found
    near = find_picture(fields, row(tmp_path), "x.png", root)
    assert near is not None and near["path"] == str(beside)
    assert load_picture(near, root).data == page("beside")
    assert find_picture(fields, row(tmp_path), "y.png", root, (other,)) is not None


def test_a_picture_that_is_missing_or_no_picture_is_a_problem_with_its_line(tmp_path: Path):
    (tmp_path / "text.png").write_text("no picture")
    fields = Fields()
    for value in ("nowhere.png", "gone.png", "text.png", "", None, 3):
        assert find_picture(fields, row(tmp_path), value, tmp_path / "root") is None
    told = [str(problem.message) for problem in fields.problems]
    assert {problem.where for problem in fields.problems} == {f"{tmp_path}/rows.json:7"}
    assert told[0] == f"there is no picture `nowhere.png` in {tmp_path}/root, {tmp_path}"
    hints = [problem.hint for problem in fields.problems if problem.hint]
    assert len(hints) == 1 and "`env.data_root`" in hints[0], "once is enough"
    assert told[2].endswith("cannot be used: it is no PNG, JPEG, GIF or WebP picture")
    assert told[3:] == ["it has no picture"] * 3


def test_a_picture_that_changed_since_is_refused(tmp_path: Path):
    place = draw(tmp_path / "x.png", "hello")
    found = find_picture(Fields(), row(tmp_path), "x.png", tmp_path)
    assert found is not None
    draw(place, "another")
    with pytest.raises(SetupError, match="has changed since its case was read"):
        load_picture(found, tmp_path)
    place.unlink()
    with pytest.raises(SetupError, match="cannot read the picture"):
        load_picture(found, tmp_path)


def test_text_and_pictures_keep_their_order_in_both_protocols():
    posed = Posed.of(["Is ", ONE, " like ", TWO, "?"])
    message = Message("user", posed.prompt, posed.images)
    assert posed.prompt == "Is  like ?"
    request = ModelRequest((message,), max_tokens=5)
    chat = Chat().body("m", request, Habits())["messages"][0]["content"]
    assert [part.get("text") for part in chat] == ["Is ", None, " like ", None, "?"]
    url = f"data:image/png;base64,{base64.b64encode(ONE.data).decode()}"
    assert chat[1] == {"type": "image_url", "image_url": {"url": url}}
    assert chat[3]["image_url"]["detail"] == "low"
    blocks = Messages().body("m", request, Habits())["messages"][0]["content"]
    assert [block.get("text") for block in blocks] == ["Is ", None, " like ", None, "?"]
    assert base64.b64decode(blocks[3]["source"]["data"]) == TWO.data


def test_a_picture_without_a_place_stands_where_it_stood_before():
    request = ModelRequest((Message("user", "what is it?", (ONE,)),), max_tokens=5)
    chat = Chat().body("m", request, Habits())["messages"][0]["content"]
    assert [part["type"] for part in chat] == ["text", "image_url"]
    blocks = Messages().body("m", request, Habits())["messages"][0]["content"]
    assert [block["type"] for block in blocks] == ["image", "text"]


def test_readers_of_the_text_alone_see_where_pictures_are():
    posed = Posed.of([ONE, " or ", TWO])
    assert marked(posed.prompt, posed.images) == "[picture 1] or [picture 2]"
    names = list(picture_files(posed.images))
    assert names == ["images/01.png", "images/02.png"]
    assert marked(posed.prompt, posed.images, names).startswith("[picture: images/01.png] or")
    assert marked("see", (ONE,)) == "see\n\n[picture 1]"
    assert marked("plain", ()) == "plain"
