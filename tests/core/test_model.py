"""A request that is made anew from another one."""

from dataclasses import fields, replace

from kept.core.llm import Message, ModelRequest, ToolOffer, asking

WHOLE = ModelRequest(
    (Message("user", "before"),),
    tools=(ToolOffer("look", "Looks.", {}),),
    schema={"type": "object"},
    temperature=0.3,
    top_p=0.9,
    max_tokens=7,
    seed=1,
    stop=("end",),
    effort="low",
)


def test_all_but_messages_and_seed_is_as_it_was():
    bare = ModelRequest(())
    plain = [f.name for f in fields(WHOLE) if getattr(WHOLE, f.name) == getattr(bare, f.name)]
    assert plain == [], "a field that is new has to be asked for here too"
    said = (Message("user", "after"),)
    assert asking(WHOLE, said, 2) == replace(WHOLE, messages=said, seed=2)
