"""The filter of system calls: what it answers on both processors, and that the kernel runs it."""

import errno
import platform
import struct
import subprocess
import sys

import pytest

from kept.sandbox.bwrap import PROCESSORS, program
from kept.sandbox.capabilities import abilities
from kept.sandbox.process import Status

ALLOWED, KILLED = "allowed", "killed"
OTHER = 0x40000003
"""AUDIT_ARCH_I386: what a program of 32 bits calls with."""

NEW_USER, NEW_MOUNTS, THREAD = 0x10000000, 0x00020000, 0x003D0F00
UNIX, INET, INET6, NETLINK, PACKET, ALG, VSOCK = 1, 2, 10, 16, 17, 38, 40

# from the tables of the kernel: arch/x86/entry/syscalls and include/uapi/asm-generic/unistd.h
_NAMES = [
    "read",
    "mmap",
    "ptrace",
    "socket",
    "socketpair",
    "clone",
    "unshare",
    "add_key",
    "request_key",
    "keyctl",
    "perf_event_open",
    "bpf",
    "userfaultfd",
]
_X86_64 = (0, 9, 101, 41, 53, 56, 272, 248, 249, 250, 298, 321, 323)
_AARCH64 = (63, 222, 117, 198, 199, 220, 97, 217, 218, 219, 241, 280, 282)
ALIKE = {"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "clone3": 435}
NUMBERS = {
    "x86_64": dict(zip(_NAMES, _X86_64, strict=True)) | ALIKE,
    "aarch64": dict(zip(_NAMES, _AARCH64, strict=True)) | ALIKE,
}


def answer(code: bytes, number: int, audit: int, argument: int = 0) -> str | int:
    """What a kernel would answer: as much of classic BPF as filters of calls use."""
    data = struct.pack("<iIQ6Q", number, audit, 0, argument, *[0] * 5)
    steps = list(struct.iter_unpack("<HBBI", code))
    at = held = 0
    while True:
        op, then, otherwise, value = steps[at]
        at += 1
        if op == 0x06:
            return {0x7FFF0000: ALLOWED, 0x80000000: KILLED}.get(value) or value & 0xFFFF
        if op == 0x20:
            (held,) = struct.unpack_from("<I", data, value)
            continue
        tests = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}
        at += then if tests[op] else otherwise


def ask(machine: str, call: str, argument: int = 0, *, sockets: bool = False) -> str | int:
    code = program(machine, sockets=sockets)
    assert code is not None
    number = NUMBERS[machine][call]
    return answer(code, number, PROCESSORS[machine].audit, argument)


@pytest.fixture(params=PROCESSORS)
def machine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("call", ["read", "mmap", "ptrace"])
def test_what_every_program_does_is_allowed(machine: str, call: str):
    assert ask(machine, call) == ALLOWED


@pytest.mark.parametrize(
    "call", ["add_key", "request_key", "keyctl", "perf_event_open", "bpf", "userfaultfd"]
)
def test_calls_that_no_wall_stands_before_are_refused(machine: str, call: str):
    assert ask(machine, call) == errno.EPERM
    assert ask(machine, call, sockets=True) == errno.EPERM


@pytest.mark.parametrize("call", ALIKE)
def test_calls_that_hide_what_they_do_are_said_not_to_exist(machine: str, call: str):
    assert ask(machine, call) == errno.ENOSYS


@pytest.mark.parametrize("call", ["clone", "unshare"])
def test_a_user_namespace_cannot_be_made_but_a_thread_can(machine: str, call: str):
    assert ask(machine, call, NEW_USER) == errno.EPERM
    assert ask(machine, call, NEW_USER | NEW_MOUNTS) == errno.EPERM
    assert ask(machine, call, THREAD) == ALLOWED


@pytest.mark.parametrize("call", ["socket", "socketpair"])
def test_sockets_are_of_families_that_a_network_namespace_holds(machine: str, call: str):
    assert {ask(machine, call, one) for one in (UNIX, INET, INET6, NETLINK)} == {ALLOWED}
    refused = {ask(machine, call, one) for one in (VSOCK, PACKET, ALG, 0, 0xFFFFFFFF)}
    assert refused == {errno.EAFNOSUPPORT}
    # what stands in the upper half of a register is nothing to the kernel
    assert ask(machine, call, VSOCK | 1 << 40) == errno.EAFNOSUPPORT
    assert ask(machine, call, VSOCK, sockets=True) == ALLOWED


def test_another_way_to_count_calls_is_no_way_round(machine: str):
    code = program(machine, sockets=False)
    assert code is not None
    # of 32 bits, where one call, `socketcall`, has the family behind a pointer
    assert answer(code, 102, OTHER) == KILLED
    if machine == "x86_64":
        x32 = 0x40000000 | NUMBERS[machine]["socket"]
        assert answer(code, x32, PROCESSORS[machine].audit, VSOCK) == errno.ENOSYS


@pytest.mark.sandbox
def test_on_a_processor_that_nobody_listed_walls_stand_without_a_filter_and_that_is_told(
    monkeypatch: pytest.MonkeyPatch,
):
    if not abilities().walls:
        pytest.skip(f"bwrap does not work here: {abilities().why_not}")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    found = abilities.__wrapped__()
    assert (found.walls, found.overlay, found.calls) == (True, abilities().overlay, False)
    assert found.why_not == "no filter of system calls for riscv64"
    told = found.enforced()
    assert told["network"]
    assert not told["no system call leads round the walls"]


CALL = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
# six arguments, so that nothing that was left in a register is one
given = [*map(int, sys.argv[1:]), 0, 0, 0, 0, 0, 0][:7]
libc.syscall(*map(ctypes.c_long, given))
print(ctypes.get_errno())
"""


def call_inside(call: str, *arguments: int, code: bytes) -> int:
    """The error that a call ends with between walls, 0 for none."""
    number = NUMBERS[platform.machine()][call]
    with Status(code) as status:
        words = ["bwrap", "--ro-bind", "/", "/"]
        words += [] if status.calls is None else ["--seccomp", str(status.calls)]
        words += ["--", sys.executable, "-c", CALL, *map(str, (number, *arguments))]
        done = subprocess.run(words, capture_output=True, pass_fds=status.fds, check=False)
    return int(done.stdout)


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("call", "argument", "expected"),
    [
        ("socket", VSOCK, errno.EAFNOSUPPORT),
        ("socket", PACKET, errno.EAFNOSUPPORT),
        ("unshare", NEW_USER, errno.EPERM),
        ("keyctl", 0, errno.EPERM),
        ("add_key", 0, errno.EPERM),
        ("bpf", 0, errno.EPERM),
        ("perf_event_open", 0, errno.EPERM),
        ("userfaultfd", 0, errno.EPERM),
        ("io_uring_setup", 1, errno.ENOSYS),
        ("clone3", 0, errno.ENOSYS),
    ],
)
def test_the_kernel_runs_it(call: str, argument: int, expected: int):
    if not abilities().calls:
        pytest.skip(f"no filter of system calls here: {abilities().why_not}")
    code = program(platform.machine(), sockets=False)
    assert code is not None
    assert call_inside(call, argument, code=code) == expected
    if argument == PACKET:
        # every kernel has this family, and says something else of it
        assert call_inside(call, argument, 3, code=b"") != expected
