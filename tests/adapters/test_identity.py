"""What a resume knows a model by."""

from types import SimpleNamespace

from kept.adapters.arguments import source_of_model


def small(prompt: str) -> str:
    return "small"


def large(prompt: str) -> str:
    return "large"


def named(model: str, **kwargs: object) -> SimpleNamespace:
    return SimpleNamespace(model=model, kwargs=kwargs)


def test_models_are_told_apart_by_name_settings_or_text():
    told = [
        *(source_of_model(lm) for lm in ("a/b", "a/c", small, large, named("a/b"))),
        source_of_model(named("a/b", temperature=1)),
        source_of_model(named("a/c", temperature=1)),
    ]
    assert len(set(told)) == len(told)


def test_another_key_and_another_address_in_memory_are_the_same_model():
    first = source_of_model(named("a/b", api_key="one", client=object()))
    assert first == source_of_model(named("a/b", api_key="two", client=object()))
    assert "one" not in first
