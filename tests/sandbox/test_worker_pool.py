"""Calls in other processes that take too long, take too much, or end."""

import asyncio
import os
import time

import pytest

from kept.sandbox.worker import ChildEnded
from kept.sandbox.worker_pool import BoundedCalls, CallRaised

pytestmark = pytest.mark.slow


def test_a_process_is_used_again_until_a_call_takes_too_long():
    calls = BoundedCalls("subprocess:check_output")
    parent = {"args": "echo $PPID", "shell": True, "text": True}
    try:
        first = calls.call(parent, 60)
        assert int(first) != os.getpid()
        assert calls.call(parent, 60) == first
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            calls.call({"args": ["sleep", "60"]}, 0.2)
        assert time.monotonic() - began < 10
        assert calls.call(parent, 60) != first
        assert asyncio.run(calls.ask(parent, 60)) != first
    finally:
        calls.close()


def test_too_much_memory_and_exceptions_of_a_function_are_told_apart():
    calls = BoundedCalls("builtins:bytearray")
    try:
        with pytest.raises(MemoryError, match="took more than 2 GiB"):
            calls.call({"source": 4 * 1024**3}, 60)
        with pytest.raises(CallRaised, match="TypeError"):
            calls.call({"other": 1}, 60)
    finally:
        calls.close()


def test_a_call_that_ends_its_process_says_how():
    calls = BoundedCalls("os:abort")
    with pytest.raises(ChildEnded, match="SIGABRT"):
        calls.call({}, 60)
