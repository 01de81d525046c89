"""SWE-bench on published images: the commands that Docker is given, run by a stand-in for it.

No engine is needed: the stand-in builds each container with bwrap, from the words of `docker run`.
"""

import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kept.core.rollout import Failure, Rollout
from kept.core.score import Score
from kept.evaluators.environments.base import EnvSettings
from kept.evaluators.environments.datasets import part
from kept.evaluators.environments.swebench.docker import ImageTestbeds, image_of, why_no_docker
from kept.evaluators.environments.swebench.environment import SweBench
from kept.evaluators.environments.swebench.evaluation import Evaluation, evaluate
from kept.evaluators.environments.swebench.instances import instance_of
from kept.evaluators.environments.swebench.testbed import Testbed
from tests.evaluators.environments.bugs import LEDGER, git, make_row
from tests.evaluators.environments.test_swebench import FIXES, rolled, shell

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.git]

STAND_IN = """\
#!{python}
import json, os, shutil, subprocess, sys

words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps(words) + "\\n")
if words[0] == "version":
    print("28.0")
elif words[0] == "cp":
    shutil.copytree({image!r}, words[2], symlinks=True)
elif words[0] == "run":
    build = ["bwrap", "--tmpfs", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    build += ["--unshare-all", "--die-with-parent", "--clearenv"]
    build += ["--setenv", "PATH", "/usr/bin:/bin"]
    for folder in ("/usr", "/etc", "/bin", "/lib", "/lib64", {base!r}):
        if os.path.exists(folder):
            build += ["--ro-bind", folder, folder]
    build += ["--ro-bind", {activate!r}, "/opt/miniconda3/bin/activate", "--setenv", "HOME", "/tmp"]
    rest = iter(words[1:])
    for word in rest:
        if word == "--volume":
            host, inside, *mode = next(rest).split(":")
            build += ["--ro-bind" if mode else "--bind", host, inside]
        elif word == "--env":
            build += ["--setenv", *next(rest).split("=", 1)]
        elif word == "--workdir":
            build += ["--chdir", next(rest)]
            break
    assert next(rest) == "acme/ledger:1", "the image comes next"
    sys.exit(subprocess.run([*build, *rest]).returncode)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for Docker with one image, which has the repository of one bug."""
    row = make_row(LEDGER, tmp_path / "repos")
    image = tmp_path / "image"
    git(tmp_path, "clone", "-q", str(tmp_path / "repos" / "acme__ledger"), str(image))
    git(image, "checkout", "-q", row["base_commit"])
    activate = tmp_path / "activate"
    python = Path(sys.base_prefix, "bin")
    activate.write_text(f"export PATH={python}:$PATH\nconda() {{ :; }}\n")
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    told = {"python": sys.executable, "log": str(tmp_path / "log"), "image": str(image)}
    program.write_text(
        STAND_IN.format(**told, base=str(Path(sys.base_prefix).resolve()), activate=str(activate))
    )
    program.chmod(0o755)
    path = os.pathsep.join((str(program.parent), os.defpath))
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("KEPT_CACHE", str(tmp_path / "cache"))
    row["setup"]["image"] = "acme/ledger:1"

    (tmp_path / "rows.json").write_text(
        json.dumps([row, {**row, "instance_id": "again", "hints_text": "x"}])
    )
    return tmp_path


def test_gold_resolves_and_empty_does_not_in_containers(folder: Path):
    assert why_no_docker() == ""
    env = SweBench(dataset_name="", runtime="docker")
    case = instance_of(next(iter(env.read(folder / "rows.json"))).case)

    async def both() -> list[Evaluation | Failure]:
        bed = await ImageTestbeds().of(case)
        assert isinstance(bed, Testbed), bed
        return [await evaluate(case, bed, patch, 60) for patch in (case.gold, "")]

    gold, empty = asyncio.run(both())
    assert isinstance(gold, Evaluation) and isinstance(empty, Evaluation)
    assert gold.resolved, (str(gold), gold.log)
    assert empty.report.resolution == "RESOLVED_NO" and not empty.why, str(empty)
    said = (folder / "log").read_text()
    assert '"--network", "none"' in said and '"--pids-limit", "512"' in said
    # each container that was started is ended by its name
    assert said.count('["run"') == said.count('["kill"') > 0


def test_a_student_works_in_containers(folder: Path):
    env = SweBench(dataset_name="", runtime="docker")
    assert env.needs() == ""
    settings = EnvSettings(name="swebench", data_path=str(folder / "rows.json"))
    case = part(env, settings).cases.train[0]
    rollout, score = rolled(env, case, shell(FIXES[LEDGER.id], f"ls {folder}; pwd"))
    assert isinstance(rollout, Rollout) and isinstance(score, Score), rollout
    assert score.metrics["hard"] == 1, score
    told = [item.text for item in rollout.trace if item.role == "tool"]
    assert "/testbed" in told[1] and "rows.json" not in told[1]


def test_a_container_that_hangs_is_ended(folder: Path):
    env = SweBench(dataset_name="", runtime="docker")
    case = instance_of(next(iter(env.read(folder / "rows.json"))).case)
    hang = case.gold.replace("+    return sum(rows)", "+    while True: pass")

    async def once() -> Evaluation | Failure:
        bed = await ImageTestbeds().of(case)
        assert isinstance(bed, Testbed), bed
        return await evaluate(case, bed, hang, 3)

    found = asyncio.run(once())
    assert isinstance(found, Evaluation)
    assert found.why == "the tests did not end within 3 seconds"
    assert '["kill"' in (folder / "log").read_text().splitlines()[-1]


def test_without_docker_the_environment_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert SweBench(runtime="docker").needs() == "there is no `docker` command"
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2; exit 1\n")
    program.chmod(0o755)
    told = SweBench(runtime="docker").needs()
    assert told == "`docker version` failed: Cannot connect to the Docker daemon"


def test_an_image_has_the_published_name(folder: Path):
    env = SweBench(dataset_name="")
    case = instance_of(next(iter(env.read(folder / "rows.json"))).case)
    assert image_of(case) == "acme/ledger:1"
    bare = replace(case, id="pallets__flask-4045", setup=replace(case.setup, image=""))
    assert image_of(bare) == "swebench/sweb.eval.x86_64.pallets_1776_flask-4045:latest"
