"""Whatever enters a drawing is text."""

from markupsafe import Markup

from kept.ui.web.charts import Axis, drawing, spread, tag

EVIL = '"><script>alert(1)</script>'


def test_what_enters_an_element_is_escaped_wherever_it_enters():
    made = tag("text", EVIL, x=1.25, class_=EVIL)
    assert made == (
        '<text x="1.2" class="&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;">'
        "&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;</text>"
    )
    assert "<script" not in drawing(10, 10, EVIL, [made], "chart")


def test_an_element_within_an_element_stays_one():
    assert tag("g", tag("a", "x", href="/y")) == Markup('<g><a href="/y">x</a></g>')


def test_a_picture_with_links_is_told_as_a_group():
    assert 'role="img"' in drawing(1, 1, "x", [tag("path", d="M0 0")], "c")
    assert 'role="group"' in drawing(1, 1, "x", [tag("a", "y", href="#")], "c")


def test_an_axis_holds_what_is_on_it_and_has_round_ticks():
    axis = Axis(0.0, 1.0, 0, 100)
    assert (axis.at(0.25), axis.at(7), axis.at(-7)) == (25, 100, 0)
    assert Axis(0.03, 0.97, 0, 1).ticks(4) == [0.5]
    assert spread([], 0, 1).low == -0.06
    flat = spread([3.0, 3.0], 0, 100)
    assert flat.low < 3.0 < flat.high
