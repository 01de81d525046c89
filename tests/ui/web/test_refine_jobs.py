"""What a page has typed for somebody, what preferences take, and what a bar of a loss says."""

import json
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from kept import settings
from kept.orchestrator.refine.proposer import ModelPair, parse_pair
from kept.store.home import Home
from kept.ui.web.auth import Refused
from kept.ui.web.charts import loss_shown
from kept.ui.web.experiments import registries
from kept.ui.web.refine_jobs import (
    Preferences,
    Store,
    Wanted,
    command,
    environment,
    problems_in,
    variables,
)
from kept.ui.web.refine_sessions import Asking, Seed, best_manifest, documents_in, shown
from tests.ui.web.project import LEGACY
from tests.ui.web.registry import PITFALLS, make_registry

M = "openai_compatible/m"


def seed_in(folder: Path, **asked: object) -> Seed:
    asking = Asking(str(folder), *asked.values())  # type: ignore[arg-type]
    return Seed("s", folder, True, asking)


def test_tiers_are_typed_so_that_the_command_reads_them_as_they_were_meant(tmp_path: Path):
    tiers = {"low": ModelPair("ollama/llama3:8b", ""), "mid": ModelPair(), "high": ModelPair("", M)}
    words = command(seed_in(tmp_path), Wanted(4, ModelPair(M, M), tiers))
    assert not any(word.startswith(("--model", "--worker-model")) for word in words)
    given = dict(word.split("=", 1) for word in words if word.startswith("--tier"))
    assert {name: parse_pair(text, name) for name, text in given.items()} == {
        "--tier-low": tiers["low"],
        "--tier-high": tiers["high"],
    }
    assert "--iterations=4" in words and "--from=best" in words


def test_a_refinement_is_given_what_its_seed_was_made_with_and_what_that_names(tmp_path: Path):
    (tmp_path / "run.yaml").write_text("models: {manager: {api_key: '${TEAM_KEY}'}}")
    seed = seed_in(tmp_path, config="run.yaml", settings=("models.worker=${OTHER}",))
    words = command(seed, Wanted(1, start="last"))
    assert {"--config=run.yaml", "--set=models.worker=${OTHER}", "--from=last"} <= set(words)
    passed = variables(seed)
    assert {"TEAM_KEY", "OTHER", "OPENAI_API_KEY", "KEPT_CACHE"} <= set(passed)
    assert not {"AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "PYTHONPATH"} & set(passed)


def test_a_refinement_is_given_every_variable_that_kept_itself_reads(tmp_path: Path):
    package = Path(settings.__file__).parent
    reads = re.compile(r"""environ(?:\.get\(|\[)\s*["'](\w+)|\bvariable\(\s*["'](\w+)""")
    found = {
        first or second
        for path in package.rglob("*.py")
        if path.relative_to(package).parts[:2]
        not in (("ui", "scaffold"), ("ui", "demo"))  # a user's own programs
        for first, second in reads.findall(path.read_text(encoding="utf-8"))
    }
    # its home is given by itself, and nobody looks at its terminal
    left_out = {"KEPT_HOME", "KEPT_DEBUG", "NO_COLOR", "TERM"}
    assert {"KEPT_MODEL", "KEPT_ARTIFACTS", *left_out} <= found, "they are read in another way now"
    assert found - left_out <= set(variables(seed_in(tmp_path)))


def test_a_registry_that_is_named_from_here_is_the_same_one_for_a_refinement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    for value, meant in (("mine.db", str(tmp_path / "mine.db")), ("", "")):
        monkeypatch.setenv("KEPT_ARTIFACTS", value)
        given = environment(seed_in(tmp_path / "below"), tmp_path / ".kept")
        assert given["KEPT_ARTIFACTS"] == meant
        assert given["KEPT_HOME"] == str(tmp_path / ".kept")


@pytest.mark.parametrize("name", ["m", "x/m", "openai/", "openai/a b", "openai/a,b", "-x", "a/{b}"])
def test_only_names_of_models_are_taken(name: str):
    with pytest.raises(ValidationError) as caught:
        Preferences.model_validate({"refinement_tier_low": {"manager": name}})
    (problem,) = problems_in(caught.value)
    assert problem.startswith("tier low manager: ")


@pytest.mark.parametrize(
    "name", [M, "ollama/llama3:8b", "codex_exec:openai/gpt-5", "", " openai/x "]
)
def test_names_with_colons_and_agent_clis_are_taken(name: str):
    taken = Preferences.model_validate({"refinement_tier_low": {"worker": name}})
    assert taken.tiers["low"].worker == name.strip()


def test_preferences_of_a_run_that_lies_by_itself_are_not_written(tmp_path: Path):
    folder = tmp_path / "alone"
    folder.mkdir()
    with pytest.raises(Refused):
        Store(Home.around(folder)).write(Preferences())
    assert list(tmp_path.iterdir()) == [folder]


def test_a_session_without_tier_keys_is_shown_without_them(tmp_path: Path):
    (tmp_path / "refinement_sessions").mkdir()
    (tmp_path / "refinement_sessions" / "one.json").write_text(LEGACY)
    (told,) = documents_in(tmp_path / "refinement_sessions")
    session = shown(told, [])
    (tried,) = session.tried
    assert (tried.loss, tried.tier, tried.manager, tried.best, tried.step) == (
        0.35, "", "", True, None,
    )  # fmt: skip
    assert not session.named and not session.tiered and session.state == "finished"


def test_a_deliverable_that_is_called_manifest_is_no_manifest(tmp_path: Path):
    (tmp_path / "BEST").mkdir()
    (tmp_path / "BEST" / "manifest.json").write_text('{"name": "app"}')
    assert best_manifest(tmp_path) is None
    told = json.dumps({"best_run_id": "r", "best_loss": 0.1})
    (tmp_path / "BEST" / "manifest.kept.json").write_text(told)
    assert best_manifest(tmp_path) == json.loads(told)


def test_registries_of_a_home_are_found_and_epochs_that_took_back_are_told(tmp_path: Path):
    home = Home(tmp_path / ".kept")
    experiment = home.path / "experiments" / "exp_0123abcd"
    experiment.mkdir(parents=True)
    make_registry(home.path / "artifacts.db")
    make_registry(experiment / "outer_loop.db")
    (home.path / "index.db").write_bytes(b"")
    found = registries(home)
    assert [one.name for one in found] == ["artifacts.db", "experiments/exp_0123abcd/outer_loop.db"]
    changes = [
        (one.name, one.old, one.new, one.rollback) for e in found[0].epochs for one in e.changes
    ]
    assert changes == [(PITFALLS, 1, 2, True), (PITFALLS, 0, 1, False)]
    assert [one.number for one in found[0].active] == [1]
    assert found[0].losses == [(1, 0.31), (2, 0.24), (3, 0.29)]
    # looking leaves no file behind: SQLite removes its own only for those who may write
    assert [path.name for path in home.path.rglob("*.db-*")] == []


def test_a_bar_shows_the_parts_of_a_loss_side_by_side():
    parts = {"eval": 0.1, "critique": 0.2, "gate_reject": 0, "budget_burn": 0, "terminal": 0.1}
    made = loss_shown({**parts, "total": 0.4}, 0.4)
    assert made is not None
    assert 'aria-label="loss 0.400: metrics 0.100, critics 0.200' in made.bar
    assert 'x="60" y="0" width="120"' in made.bar
    assert loss_shown({}) is None
    assert "part whole" in loss_shown({"total": 0.3}).bar  # type: ignore[union-attr]
