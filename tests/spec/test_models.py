"""The models of a task: what may be said, and what is wrong with it, with its line."""

from pathlib import Path

import pytest

from kept.errors import SpecError
from kept.models.cache import CachedModel
from kept.models.client import HttpModel
from kept.models.providers import ModelConfig, Price
from kept.models.roles import ROLES, connect_role, is_kept
from kept.recipes.base import Compiled, plan_facts
from kept.recipes.task.compile import compile_task
from kept.recipes.task.models import configs
from kept.spec.shared_sections import ModelsSpec, open_address
from tests.recipes.task.tasks import TASK, write_task

FAR = "base_url: 'https://h/v1'"
MONEY = "budget: {max_iterations: 20, max_usd: 1, usd_per_rollout: 0}"


@pytest.fixture(autouse=True)
def no_models(monkeypatch: pytest.MonkeyPatch):
    for name in ("KEPT_MODEL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def compiled(folder: Path, models: str, base: str = TASK) -> Compiled:
    return compile_task(write_task(folder, f"{base}models: {models}\n"))


@pytest.mark.parametrize(
    ("models", "problem"),
    [
        (
            "{optimizer: opanai/gpt-5}",
            "task.yaml:7 models.optimizer: `opanai` is no provider of models; "
            "did you mean `openai`?",
        ),
        (
            "{judge: gpt-5}",
            "task.yaml:7 models.judge: `gpt-5` is not a model; write provider/model, as in",
        ),
        (
            "{judge: 5}",
            "task.yaml:7 models.judge: the number 5, where a mapping was expected",
        ),
        (
            "\n  target:\n    provider: antropic\n    model: x",
            "task.yaml:9 models.target.provider: `antropic` is no provider of models; "
            "did you mean `anthropic`?",
        ),
        (
            "\n  target:\n    provider: openai",
            "task.yaml:8 models.target.model: missing",
        ),
        (
            "{target: {provider: openai, model: x, temprature: 1}}",
            "models.target.temprature: unknown key (hint: did you mean `temperature`?)",
        ),
        (
            "{target: {provider: openai, model: x, temperature: hot}}",
            "models.target.temperature: the text `hot`, where a number was expected",
        ),
        (
            "{target: {provider: openai, model: x, effort: huge}}",
            "models.target.effort: the text `huge`, where",
        ),
        (
            "{target: {provider: openai, model: x, api_version: v1}}",
            "models.target: `api_version` goes with `provider: azure_openai`",
        ),
        (
            "{target: {provider: anthropic, model: x, seed: 1}}",
            "models.target: Anthropic takes no `seed`",
        ),
        (
            "{target: {provider: openai, model: x, price: {input: 1}}}",
            "models.target.price.output: missing",
        ),
    ],
)
def test_what_is_wrong_with_a_model_is_told_with_its_line(
    tmp_path: Path, models: str, problem: str
):
    with pytest.raises(SpecError) as raised:
        compiled(tmp_path, models)
    assert problem in str(raised.value)


@pytest.mark.parametrize("key", ["sk-planted-canary-1234", "'${KEY} and more'", "123456789"])
def test_a_key_in_a_file_is_refused_and_not_repeated(tmp_path: Path, key: str):
    with pytest.raises(SpecError) as raised:
        compiled(tmp_path, f"{{judge: {{provider: openai, model: x, api_key: {key}}}}}")
    assert "write ${NAME} for it" in str(raised.value)
    assert "canary" not in str(raised.value)
    assert "123456789" not in str(raised.value)


def test_a_block_says_all_that_a_config_holds():
    price = {"input": 1.0, "output": 2.0}
    spec = ModelsSpec.model_validate(
        {
            "judge": {
                "provider": "azure_openai",
                "model": "d",
                "base_url": "https://x.openai.azure.com",
                "api_key": "${MY_KEY}",
                "api_version": "2024-10-21",
                "temperature": 0.0,
                "max_tokens": 9,
                "timeout_seconds": 7.0,
                "stall_seconds": 3.0,
                "price": price,
            }
        }
    )
    config = configs(spec, Path("/f"))["judge"]
    assert config == ModelConfig(
        provider="azure_openai",
        model="d",
        base_url="https://x.openai.azure.com",
        api_key="${MY_KEY}",
        api_version="2024-10-21",
        temperature=0.0,
        max_tokens=9,
        timeout=7.0,
        stall=3.0,
        price=Price(input=1, output=2),
        folder=Path("/f"),
    )


def test_the_roles_of_a_spec_are_the_roles_there_are():
    assert tuple(ModelsSpec.model_fields) == ROLES


def test_kept_model_is_the_optimizer_unless_the_task_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEPT_MODEL", "anthropic/claude-sonnet-4-5")
    facts = plan_facts(compiled(tmp_path, "{}").plan)
    assert facts.models == {"optimizer": {"model": "anthropic/claude-sonnet-4-5", "cache": True}}
    facts = plan_facts(compiled(tmp_path, "{optimizer: openai/gpt-5-mini}").plan)
    assert facts.models == {"optimizer": {"model": "openai/gpt-5-mini", "cache": True}}


def test_a_kept_model_that_names_none_is_a_warning_where_nobody_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("KEPT_MODEL", "gpt-5")
    assert any("KEPT_MODEL: `gpt-5` is not a model" in w for w in compiled(tmp_path, "{}").warnings)


def test_what_is_missing_or_has_no_price_is_said_once(tmp_path: Path):
    block = f"{{provider: openai_compatible, model: x, {FAR}}}"
    told = compiled(
        tmp_path, f"{{judge: {block}, critic: {block}, target: openai/gpt-4o}}"
    ).warnings
    about = [
        warning for warning in told if "model" in warning or "price" in warning or "KEY" in warning
    ]
    assert about == [
        "the target `openai/gpt-4o` cannot be asked: OPENAI_API_KEY is not set",
        "the price of `openai_compatible/x` is not known: what it costs is not counted",
    ]


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        (f"{{provider: openai_compatible, model: x, {FAR}}}", "give `price`"),
        (
            f"{{provider: openai_compatible, model: x, {FAR}, price: {{input: 1, output: 1}}}}",
            "give `max_tokens`",
        ),
        ("openai/gpt-of-our-own", "give `price`"),
    ],
)
def test_a_limit_of_money_needs_models_whose_calls_have_a_worst_case(
    tmp_path: Path, model: str, hint: str
):
    base = TASK.replace("budget: {max_iterations: 20}", MONEY)
    with pytest.raises(SpecError) as raised:
        compiled(tmp_path, f"{{judge: {model}}}", base)
    assert "task.yaml:7 models.judge: what a call costs at most is not known" in str(raised.value)
    assert hint in str(raised.value)


def test_a_limit_of_money_goes_with_models_that_have_a_price(tmp_path: Path):
    base = TASK.replace("budget: {max_iterations: 20}", MONEY)
    local = "{provider: ollama, model: x}"
    assert compiled(tmp_path, f"{{judge: openai/gpt-4o, target: {local}}}", base).plan


def config(**given: object) -> ModelConfig:
    return ModelConfig(provider="ollama", model="m", **given)  # pyright: ignore[reportArgumentType] # as given


def test_replies_are_kept_unless_they_are_draws_to_measure_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert is_kept("optimizer", config())
    assert is_kept("target", config(temperature=0.0))
    assert not is_kept("target", config())
    assert not is_kept("target", config(temperature=0.7))
    assert is_kept("target", config(temperature=0.7, cache=True))
    assert not is_kept("judge", config(cache=False))
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path))
    assert isinstance(connect_role("target", config()), HttpModel)
    assert isinstance(connect_role("judge", config()), CachedModel)
    # with the first call, and not before: `kept check` connects too, and writes nothing
    assert not (tmp_path / "calls.db").exists()


@pytest.mark.parametrize(
    "given",
    [
        "models.judge={provider: openai, model: x, api_key: sk-123456789}",
        "models.judge={provider: openai, model: x, 'api_key': 'sk-123456789'}",
        "models.judge.api_key=sk-123456789",
        "models.judge={provider: openai, model: x, base_url: 'http://kim:sk-123456789@h'}",
    ],
)
def test_what_is_secret_in_a_setting_is_not_told_with_what_is_wrong_with_it(
    tmp_path: Path, given: str
):
    path = write_task(tmp_path, f"{TASK}models: {{judge: {{provider: openai, model: x}}}}\n")
    with pytest.raises(SpecError) as told:
        compile_task(path, [given])
    assert "--set models.judge" in str(told.value) and "in the environment" in str(told.value)
    assert "sk-1234" not in str(told.value)


@pytest.mark.parametrize(
    "address", ["http://${USER}:${PASS}@h/v1", "${URL}", "http://${LOGIN}@h", "http://h/a@b"]
)
def test_an_address_may_have_its_login_from_the_environment(address: str):
    assert open_address(address) == address
