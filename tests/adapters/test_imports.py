"""An adapter is there without its peer."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_adapters_are_imported_without_their_peers(tmp_path: Path):
    script = (
        "import sys\n"
        "from kept.adapters import dspy, gepa, inspect\n"
        "assert all(callable(peer.optimize) for peer in (gepa, dspy, inspect))\n"
        "peers = ('gepa', 'dspy', 'litellm', 'inspect_ai')\n"
        "print([name for name in peers if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_a_call_that_needs_a_peer_which_is_not_there_says_so(tmp_path: Path):
    script = (
        "import sys\n"
        "sys.modules['gepa'] = None\n"
        "import kept\n"
        "from kept.adapters import gepa\n"
        "try:\n"
        "    gepa.optimize({'a': 'b'}, [1], task_lm=len, reflection_lm=len, max_metric_calls=9)\n"
        "except kept.SetupError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "`task_lm` needs gepa's own adapter" in done.stdout
    assert "hint: pip install gepa" in done.stdout


@pytest.mark.slow
def test_an_inspect_task_without_inspect_says_what_to_install(tmp_path: Path):
    script = (
        "import sys\n"
        "sys.modules['inspect_ai'] = None\n"
        "import kept\n"
        "from kept.adapters import inspect\n"
        "try:\n"
        "    inspect.optimize(lambda prompt: None, 'a', reflection_lm=len, max_metric_calls=9)\n"
        "except kept.SetupError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "Inspect is not here\n\nhint: pip install inspect_ai\n"
