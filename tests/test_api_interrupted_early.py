"""Ctrl-C at the very moment at which a run says that it began."""

import os
import signal
from pathlib import Path

import pytest

import kept
from kept.core.event import Event, RunStarted
from kept.core.state import State


class Impatient:
    """Implements `kept.core.ports.Sink`: who presses Ctrl-C on the first line there is."""

    def on_event(self, event: Event, state: State) -> None:
        if isinstance(event, RunStarted):
            os.kill(os.getpid(), signal.SIGINT)


def _length(candidate: kept.Candidate) -> float:
    return float(len(candidate.text))


def test_it_is_interrupted_and_can_go_on(tmp_path: Path):
    def run(*sinks: Impatient, resume: str | None = None) -> kept.Result:
        return kept.optimize(
            "seed",
            _length,
            proposers=["longer text"],
            budget=2,
            home=tmp_path,
            sinks=sinks,
            resume=resume,
        )

    with pytest.raises(KeyboardInterrupt, match="resume="):
        run(Impatient())
    (folder,) = (tmp_path / "runs").iterdir()
    with kept.read_run(folder) as told:
        assert told.state.stopped is not None and told.state.stopped.kind == "interrupted"
    assert run(resume="last").best.text == "longer text"
