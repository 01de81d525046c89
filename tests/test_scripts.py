"""scripts/test and scripts/demo on machines that lack things.

The machine is a PATH of stubs: they note how they were called, and fail where a test says so.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.processes import is_gone

ROOT = Path(__file__).parent.parent
INSTALL = "python -m pip install --no-compile -e"
REAL_TOOLS = (
    "bash",
    "cat",
    "cksum",
    "cp",
    "dirname",
    "env",
    "flock",
    "grep",
    "mkdir",
    "mktemp",
    "rm",
    "sleep",
    "sort",
    "tail",
)

# Serves as `python3` and as `.venv/bin/python`. `has-MODULE` in the state folder is what it can
# import; `fails-WORD` is what it cannot do.
PYTHON = """#!/bin/bash
echo "python $*" >>{state}/calls
case "$*" in
  "-c import sys, "*) module=${{2#import sys, }}; [ -e "{state}/has-${{module%%;*}}" ] ;;
  "-c import pip") [ -e {state}/has-pip ] ;;
  "-m venv "*) {make_venv} "$3" ;;
  "-m virtualenv "*) {make_venv} "$4" ;;
  "-m pip config list") cat {state}/pip-config ;;
  "-m pip install --no-compile uv=="*)
    [ ! -e {bin}/uv-of-pip ] || cp {bin}/uv-of-pip {venv}/bin/uv
    ;;
  "-m pip "*"[local]") [ ! -e {state}/fails-local ] || {{ cat {state}/fails-local; exit 1; }} ;;
  "-m pip "*) [ ! -e {state}/fails-pip ] ;;
  "-m pytest"*)
    echo "tests"
    env >{state}/environment
    [ ! -e {state}/interrupted ] || kill -INT $PPID
    exit "$(cat {state}/pytest-exit)"
    ;;
  "- "*) cat >/dev/null; [ ! -e {state}/fails-whole ] ;;
esac
"""
MAKE_VENV = """#!/bin/bash
mkdir -p "$1/bin"
cp {bin}/python3 "$1/bin/python"
for tool in ruff kept; do cp {bin}/tool "$1/bin/$tool"; done
cp {bin}/pyright "$1/bin/pyright"
"""
# Ends when the tests have begun, or after ten seconds; `hangs-pyright` is one that never does.
PYRIGHT = """#!/bin/bash
echo "pyright $*" >>{state}/calls
echo $$ >{state}/pid-of-pyright
[ ! -e {state}/hangs-pyright ] || sleep 300
for _ in {{1..500}}; do
  [[ $(<{state}/calls) == *"python -m pytest"* ]] && echo "types" && break
  sleep 0.02
done
[ ! -e {state}/fails-pyright ]
"""
TOOL = """#!/bin/bash
echo "${{0##*/}} $*" >>{state}/calls
[ ! -e "{state}/fails-${{0##*/}}" ]
"""
APT = """#!/bin/bash
echo "apt-get $*" >>{state}/calls
[ ! -e {state}/fails-apt ] || {{ cat {state}/fails-apt; exit 100; }}
case "$*" in
  *python3-venv*) : >{state}/has-ensurepip ;;
  *" git"*) cp {bin}/tool {bin}/git ;;
esac
"""
UV = """#!/bin/bash
echo "uv $*" >>{state}/calls
[ ! -e {state}/fails-uv ] || {{ echo "no such index" >&2; exit 1; }}
rm -f {state}/has-pip
case "$*" in "venv "*) {make_venv} "${{!#}}" ;; esac
"""


class Machine:
    """A checkout with the project's scripts, and the only programs that they can find."""

    def __init__(self, folder: Path) -> None:
        self.checkout = folder / "checkout"
        self.state = folder / "state"
        self.bin = folder / "bin"
        self.cache = folder / "cache"
        self.environment: dict[str, str] = {}
        (self.checkout / "src" / "kept").mkdir(parents=True)
        shutil.copytree(ROOT / "scripts", self.checkout / "scripts")
        self.edit("pyproject.toml", "[project]")
        self.edit("src/kept/_version.py", "__version__ = '0'")
        for made in (self.state, self.bin):
            made.mkdir()
        for tool in REAL_TOOLS:
            real = shutil.which(tool)
            assert real is not None, f"no {tool} on this machine"
            (self.bin / tool).symlink_to(real)
        self.stub("make-venv", MAKE_VENV)
        self.stub("python3", PYTHON)
        self.stub("tool", TOOL)
        self.stub("pyright", PYRIGHT)
        self.stub("git", TOOL)
        self.stub("bwrap", TOOL)
        self.stub("npm", TOOL)
        self.stub("chromium", TOOL)
        self.stub("soffice", TOOL)
        self.stub("apt-get", APT)
        self.be_user(1000)
        self.note("pytest-exit", "0")
        self.note("pip-config")
        for module in ("sys", "ensurepip", "pip"):
            self.note(f"has-{module}")

    def edit(self, name: str, text: str) -> None:
        (self.checkout / name).write_text(text, encoding="utf-8")

    def stub(self, name: str, text: str) -> None:
        path = self.bin / name
        places = {
            "state": self.state,
            "bin": self.bin,
            "make_venv": self.bin / "make-venv",
            "venv": self.checkout / ".venv",
        }
        path.write_text(text.format(**places), encoding="utf-8")
        path.chmod(0o755)

    def be_user(self, uid: int) -> None:
        self.stub("id", f"#!/bin/bash\necho {uid}\n")

    def note(self, name: str, text: str = "") -> None:
        (self.state / name).write_text(text, encoding="utf-8")

    def lacks(self, module: str) -> None:
        (self.state / f"has-{module}").unlink()

    def run(self, *argv: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        self.note("calls")
        return subprocess.run(
            [*before, str(self.checkout / "scripts" / argv[0]), *argv[1:]],
            env={"PATH": str(self.bin), "KEPT_CACHE": str(self.cache), **self.environment},
            cwd=self.bin,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def run_read_only(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """The same on a machine that does not let the checkout be written to, not even by root."""
        bwrap = shutil.which("bwrap")
        assert bwrap is not None
        here = str(self.checkout)
        return self.run(*argv, before=(bwrap, "--dev-bind", "/", "/", "--ro-bind", here, here))

    def calls(self, start: str) -> list[str]:
        """What the last run called that begins so."""
        lines = (self.state / "calls").read_text(encoding="utf-8").splitlines()
        return [line for line in lines if line.startswith(start)]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_first_run_installs_and_the_second_does_not(machine: Machine):
    assert machine.run("test", "-k", "gate").returncode == 0
    assert machine.calls(INSTALL) == [f"{INSTALL} .[dev]"]
    assert machine.calls("python -m pytest") == ["python -m pytest -k gate"]
    again = machine.run("test", "-k", "gate")
    assert again.returncode == 0
    assert machine.calls("python -m pip install") == []
    assert again.stderr == ""


def test_tests_see_no_variable_of_the_caller_but_those_of_a_fresh_machine(machine: Machine):
    machine.environment = {"PYTHONUNBUFFERED": "1", "OPENAI_API_KEY": "x", "SSL_CERT_FILE": "/ca"}
    assert machine.run("test", "-x").returncode == 0
    lines = (machine.state / "environment").read_text().splitlines()
    # bash itself adds some
    assert {line.partition("=")[0] for line in lines} - {"PWD", "SHLVL", "TERM", "_"} == {
        "PATH",
        "KEPT_CACHE",
        "SSL_CERT_FILE",
    }


def test_nightly_runs_its_own_tests_and_fast_on_the_other_pythons(machine: Machine):
    for version in ("3.12", "3.13"):
        machine.stub(f"python{version}", PYTHON)
    done = machine.run("test", "nightly")
    assert done.returncode == 0, done.stderr
    fast, more, nightly = machine.calls("python -m pytest")
    assert "-m not nightly and not slow" in fast
    assert "-m not nightly and not slow" in more
    assert "-m nightly" in nightly
    assert "--stage Python 3.12:" in nightly
    assert (machine.checkout / ".venv-3.12").is_dir()
    assert (machine.checkout / ".venv-3.13").is_dir()


def test_nightly_finds_a_python_of_pyenv_whose_command_fails(machine: Machine):
    machine.stub("python3.13", "#!/bin/bash\nexit 127\n")
    for version in ("3.13.0", "3.13.12", "3.13.2"):
        machine.stub(f"pyenv-{version}", PYTHON)
        bin_ = machine.state / "pyenv" / "versions" / version / "bin"
        bin_.mkdir(parents=True)
        (bin_ / "python3.13").symlink_to(machine.bin / f"pyenv-{version}")
    machine.environment["PYENV_ROOT"] = str(machine.state / "pyenv")
    done = machine.run("test", "nightly")
    assert done.returncode == 0, done.stderr
    fast, nightly = machine.calls("python -m pytest")
    assert "-m not nightly and not slow" in fast and "-m nightly" in nightly
    assert (machine.checkout / ".venv-3.13").is_dir()
    assert "Python 3.12 is not on this machine" in done.stderr


def test_nightly_names_a_python_that_is_not_there(machine: Machine):
    done = machine.run("test", "nightly")
    assert done.returncode == 0, done.stderr
    assert "Python 3.13 is not on this machine: `fast` is not run on it" in done.stderr
    assert len(machine.calls("python -m pytest")) == 1


def test_a_change_of_pyproject_installs_into_the_same_environment(machine: Machine):
    machine.run("test", "-x")
    machine.edit("pyproject.toml", "[project]\nname = 'kept'")
    assert machine.run("test", "-x").returncode == 0
    assert len(machine.calls(INSTALL)) == 1
    assert machine.calls("python -m venv") == []


def test_a_cut_install_is_started_over(machine: Machine):
    machine.note("fails-pip")
    first = machine.run("test", "-x")
    assert first.returncode == 2
    assert "could not make .venv" in first.stderr
    (machine.state / "fails-pip").unlink()
    assert machine.run("test", "-x").returncode == 0
    assert len(machine.calls("python -m venv")) == 1


def test_a_broken_environment_is_made_again(machine: Machine):
    machine.run("test", "-x")
    machine.note("fails-whole")
    assert machine.run("test", "-x").returncode == 0
    assert len(machine.calls("python -m venv")) == 1


def test_an_environment_copied_with_its_checkout_is_made_again(machine: Machine):
    machine.run("test", "-x")
    machine.checkout = machine.checkout.rename(machine.checkout.with_name("moved"))
    assert machine.run("test", "-x").returncode == 0
    assert len(machine.calls("python -m venv")) == 1


def test_root_without_ensurepip_installs_python3_venv_and_says_so(machine: Machine):
    machine.lacks("ensurepip")
    machine.be_user(0)
    done = machine.run("test", "-x")
    assert done.returncode == 0
    assert machine.calls("apt-get") == ["apt-get update", "apt-get install -y python3-venv"]
    assert "apt-get install -y python3-venv" in done.stderr


def test_a_user_without_ensurepip_is_told_the_line_to_type(machine: Machine):
    machine.lacks("ensurepip")
    done = machine.run("test", "-x")
    assert done.returncode == 2
    assert "apt-get update && apt-get install -y python3-venv" in done.stderr
    assert machine.calls("apt-get") == []


def test_a_user_without_ensurepip_but_with_virtualenv_is_served(machine: Machine):
    machine.lacks("ensurepip")
    machine.note("has-virtualenv")
    done = machine.run("test", "-x")
    assert done.returncode == 0
    assert len(machine.calls("python -m virtualenv")) == 1


def test_a_machine_without_a_new_enough_python_is_told_so(machine: Machine):
    machine.lacks("sys")
    machine.lacks("ensurepip")
    done = machine.run("demo")
    assert done.returncode == 2
    assert "no Python 3.11 or newer" in done.stderr


def test_uv_is_used_where_it_is(machine: Machine):
    machine.stub("uv", UV)
    assert machine.run("test", "-x").returncode == 0
    assert len(machine.calls("uv venv")) == 1
    assert len(machine.calls("uv pip install")) == 1
    assert machine.calls("python -m pip") == []


def test_pip_takes_over_when_uv_fails(machine: Machine):
    machine.stub("uv", UV)
    machine.note("fails-uv")
    done = machine.run("test", "-x")
    assert done.returncode == 0
    assert "uv could not do it (no such index); using pip" in done.stderr
    assert len(machine.calls(INSTALL)) == 1


def test_without_uv_pip_fetches_one_which_does_the_rest(machine: Machine):
    machine.stub("uv-of-pip", UV)
    assert machine.run("test").returncode == 0
    (fetched,) = machine.calls("python -m pip install")
    assert fetched.startswith("python -m pip install --no-compile uv==")
    assert sum("--target" in call for call in machine.calls("uv pip install")) == 3
    assert len(machine.calls("uv pip install")) == 4
    assert machine.calls("uv venv") == []


def test_a_uv_that_pip_fetched_and_that_fails_leaves_it_to_pip(machine: Machine):
    machine.stub("uv-of-pip", UV)
    machine.note("fails-uv")
    assert machine.run("test", "-x").returncode == 0
    assert len(machine.calls("uv pip install")) == 1
    assert len(machine.calls(INSTALL)) == 1


def test_an_index_of_pip_s_own_is_asked_by_pip(machine: Machine):
    machine.stub("uv-of-pip", UV)
    lines = ("cert='x'", "index-url='https://127.0.0.1/simple'", *(["timeout='60'"] * 4000))
    machine.note("pip-config", "".join(f"global.{line}\n" for line in lines))
    assert machine.run("test", "-x").returncode == 0
    assert machine.calls("uv") == []
    assert machine.calls("python -m pip install") == [f"{INSTALL} .[dev]"]


def test_demo_uses_what_test_made(machine: Machine):
    machine.run("test", "-x")
    assert machine.run("demo", "--seed", "3").returncode == 0
    assert machine.calls("python -m pip") == []
    assert machine.calls("kept") == ["kept demo --seed 3"]


def test_demo_alone_installs_the_model_and_no_tools_and_test_adds_them(machine: Machine):
    assert machine.run("demo").returncode == 0
    assert machine.calls(INSTALL) == [f"{INSTALL} .[local]"]
    assert machine.run("demo").returncode == 0
    assert machine.calls("python -m pip") == []
    assert machine.run("test", "-x").returncode == 0
    assert machine.calls(INSTALL) == [f"{INSTALL} .[dev]"]


def test_a_machine_without_an_engine_for_the_model_still_sees_a_demo(machine: Machine):
    machine.note("fails-local", "ERROR: No matching distribution found for xllamacpp>=2026.10")
    done = machine.run("demo")
    assert done.returncode == 0
    assert "there is no xllamacpp for this machine; going on without the model" in done.stderr
    assert machine.calls(INSTALL)[-1] == f"{INSTALL} ."
    assert machine.calls("kept") == ["kept demo"]


def test_a_demo_that_cannot_be_installed_for_another_reason_is_not_tried_twice(machine: Machine):
    machine.note("fails-local", "ERROR: No matching distribution found for hatchling")
    done = machine.run("demo")
    assert done.returncode == 2
    assert len(machine.calls(INSTALL)) == 1
    assert machine.calls("kept") == []


def test_a_user_without_a_tool_is_told_the_line_and_its_mark_is_skipped(machine: Machine):
    (machine.bin / "git").unlink()
    done = machine.run("test", "-x")
    assert "apt-get update && apt-get install -y git" in done.stderr
    assert machine.calls("python -m pytest") == ["python -m pytest --missing git:git -x"]


def test_root_without_a_tool_installs_it(machine: Machine):
    (machine.bin / "git").unlink()
    machine.be_user(0)
    done = machine.run("test", "-x")
    assert "apt-get install -y git" in done.stderr
    assert machine.calls("python -m pytest") == ["python -m pytest -x"]


def test_root_whose_apt_fails_skips_the_mark(machine: Machine):
    (machine.bin / "git").unlink()
    machine.be_user(0)
    machine.note("fails-apt")
    assert machine.run("test", "-x").returncode == 0
    assert machine.calls("python -m pytest") == ["python -m pytest --missing git:git -x"]


def test_the_weights_of_the_model_are_fetched_unless_the_tests_are_to_be_fast(machine: Machine):
    assert machine.run("test", "-x").returncode == 0
    assert machine.calls("kept") == ["kept models pull --quiet smollm2"]
    assert machine.run("test", "fast").returncode == 0
    assert machine.calls("kept") == []
    (call,) = machine.calls("python -m pytest")
    assert "-m not nightly and not slow and not docs and not kill and not wheel" in call


def test_without_the_weights_the_tests_of_the_model_are_skipped(machine: Machine):
    machine.note("fails-kept")
    done = machine.run("test", "-x")
    assert done.returncode == 0
    assert "some tests will be skipped" in done.stderr
    assert machine.calls("python -m pytest") == [
        "python -m pytest --missing model:the weights of smollm2 -x"
    ]


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("npm", "npm install --prefix {cache}/agents "),
        (
            "python -m pip install --no-compile --target {cache}/peers/dspy",
            "python -m pip install --no-compile --target {cache}/peers/dspy dspy==",
        ),
        (
            "python -m pip install --no-compile --target {cache}/peers/inspect",
            "python -m pip install --no-compile --target {cache}/peers/inspect inspect_ai==",
        ),
    ],
)
def test_what_only_some_tests_need_is_fetched_once_when_all_are_run(
    tool: str, words: str, machine: Machine
):
    tool = tool.format(cache=machine.cache)
    machine.run("test", "-x")
    machine.run("test", "fast")
    assert machine.calls(tool) == []
    machine.run("test")
    (call,) = machine.calls(tool)
    assert call.startswith(words.format(cache=machine.cache))
    assert tool != "npm" or "@openai/codex@" in call
    machine.run("test")
    assert machine.calls(tool) == []


def test_swebench_is_fetched_for_nightly_alone_and_once(machine: Machine):
    fetched = f"python -m pip install --no-compile --target {machine.cache}/peers/swebench"
    assert machine.run("test").returncode == 0
    assert machine.calls(fetched) == []
    assert machine.run("test", "nightly").returncode == 0
    (call,) = machine.calls(fetched)
    assert call.startswith(f"{fetched} swebench==")
    assert machine.run("test", "nightly").returncode == 0
    assert machine.calls(fetched) == []


def test_without_swebench_nightly_skips_its_tests_by_name(machine: Machine):
    machine.run("test", "-x")
    machine.note("fails-pip")
    done = machine.run("test", "nightly")
    assert "pip could not install swebench==" in done.stderr
    assert "--missing swebench:swebench==" in machine.calls("python -m pytest")[-1]


def test_peers_that_a_compiler_lets_begin_early_are_fetched_once(machine: Machine):
    for tool in ("make", "g++"):
        machine.stub(tool, TOOL)
    assert machine.run("test").returncode == 0
    assert sum("--target" in call for call in machine.calls("python -m pip install")) == 3


def test_in_a_fresh_checkout_the_tests_of_inspect_collect_all_there_are(machine: Machine):
    (machine.checkout / "tests" / "__pycache__").mkdir(parents=True)
    (machine.checkout / "tests" / "test_a.py").write_text("import inspect")
    (machine.checkout / "tests" / "test_b.py").write_text("import os")
    assert machine.run("test").returncode == 0
    assert machine.calls("python -m pytest")[0].endswith(" -m inspect")
    (machine.checkout / "tests" / "__pycache__" / "a.cpython-311-pytest-9.pyc").write_text("")
    assert machine.run("test").returncode == 0
    assert machine.calls("python -m pytest")[0].endswith(" -m inspect tests/test_a.py")


def test_what_apt_says_where_it_fails_is_shown(machine: Machine):
    (machine.bin / "git").unlink()
    machine.be_user(0)
    machine.note("fails-apt", "E: there is no git here")
    assert "E: there is no git here" in machine.run("test", "-x").stderr


def test_without_a_peer_its_tests_are_skipped(machine: Machine):
    machine.run("test", "-x")
    machine.note("fails-pip")
    done = machine.run("test")
    assert "pip could not install dspy==" in done.stderr
    assert "pip could not install inspect_ai==" in done.stderr
    apart, others = machine.calls("python -m pytest")
    assert "--missing inspect:inspect_ai==" in apart
    assert "--missing dspy:dspy==" in others


def test_without_the_agent_clis_their_tests_are_skipped(machine: Machine):
    machine.note("fails-npm")
    done = machine.run("test")
    assert "npm could not install @openai/codex@" in done.stderr
    _, call = machine.calls("python -m pytest")
    assert "--missing agents:@openai/codex@" in call
    machine.run("test")
    assert len(machine.calls("npm")) == 1, "it is tried again"


def test_a_failing_check_fails_the_whole_and_the_tests_still_run(machine: Machine):
    machine.note("fails-ruff")
    assert machine.run("test", "fast").returncode == 1
    (call,) = machine.calls("python -m pytest")
    assert "-m not nightly and not slow and not docs and not kill" in call
    assert ":FAILED" in call


def test_types_are_checked_beside_the_tests_and_told_behind_them(machine: Machine):
    assert machine.run("test", "fast").stdout.endswith("tests\n-- pyright: ok\ntypes\n")
    machine.note("fails-pyright")
    done = machine.run("test", "fast")
    assert done.returncode == 1
    assert done.stdout.endswith("tests\n-- pyright: FAILED\ntypes\n")
    (call,) = machine.calls("python -m pytest")
    assert ":FAILED" not in call


def test_who_interrupts_it_leaves_nothing_behind(machine: Machine):
    machine.note("interrupted")
    machine.note("hangs-pyright")
    done = machine.run("test", "fast")
    assert done.returncode == 130
    assert "-- pyright" not in done.stdout
    assert is_gone(int((machine.state / "pid-of-pyright").read_text()))


def test_failing_tests_fail_the_whole_with_their_own_code(machine: Machine):
    machine.note("pytest-exit", "5")
    assert machine.run("test").returncode == 5
    apart, others = machine.calls("python -m pytest")
    assert apart.endswith(" -m inspect"), "two peers need two versions of one library"
    assert others.endswith(" -m not inspect and not nightly")
    assert (others.count(":ok"), others.count(":FAILED")) == (2, 1)


def test_everything_passing_is_zero(machine: Machine):
    assert machine.run("test").returncode == 0
    assert len(machine.calls("ruff")) == 2
    assert len(machine.calls("pyright")) == 1


def test_the_scripts_can_be_executed():
    for name in ("scripts/test", "scripts/demo", ".ci/run"):
        assert os.access(ROOT / name, os.X_OK), name


@pytest.mark.sandbox
@pytest.mark.parametrize("script", ["test", "demo"])
def test_a_checkout_that_cannot_be_written_to_is_told_in_one_line(script: str, machine: Machine):
    done = machine.run_read_only(script)
    assert done.returncode == 2
    told, blank, hint = done.stderr.splitlines()
    assert told == f"{script}: cannot write to {machine.checkout}, where .venv is to be made"
    assert blank == ""
    assert hint.startswith(f"hint: copy the checkout and run the copy: cp -r {machine.checkout} ")
    assert machine.calls("python -m") == []


@pytest.mark.sandbox
def test_what_is_installed_runs_from_a_checkout_that_cannot_be_written_to(machine: Machine):
    assert machine.run("test", "-k", "gate").returncode == 0
    assert machine.run_read_only("test", "-k", "gate").returncode == 0
    assert machine.calls("python -m pytest") == ["python -m pytest -k gate"]
    assert machine.run_read_only("demo").returncode == 0
    machine.edit("pyproject.toml", "[project] # another by now")
    assert machine.run_read_only("demo").returncode == 2
