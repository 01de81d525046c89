"""What somebody is told who has not got what a model on this machine needs."""

import asyncio
import sys
from pathlib import Path

import pytest

from kept.core.llm import Message, ModelRequest
from kept.core.rollout import Failure
from kept.errors import SetupError
from kept.models.local.model import LocalModel, make
from kept.models.providers import ModelConfig
from kept.settings import install_command


def test_without_the_extra_the_line_to_type_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    model = LocalModel("local/any", tmp_path / "any.gguf")
    failure = asyncio.run(model.complete(ModelRequest((Message("user", "hello"),))))
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.blame) == ("harness", "infrastructure")
    assert f"hint: {install_command('local')}" in failure.message


def test_without_weights_the_command_that_fetches_them_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path))
    with pytest.raises(
        SetupError, match="the weights of `smollm2` are not on this machine"
    ) as told:
        make(ModelConfig(provider="local", model="smollm2"))
    assert "`kept models pull smollm2`" in str(told.value)
