"""System calls that a command between walls is refused: a filter that the kernel runs.

Namespaces close the network, the processes and the files, but not every door of the kernel. What
needs a capability need not be here: a command has none, and with the first line can get none.

    unshare, clone     of a user namespace: inside, a command has every capability
    clone3             hides its flags from a filter; without it programs take `clone`
    io_uring           makes other calls, `socket` among them, that no filter sees
    keyctl …           the keys of the user, which no namespace parts from those of the command
    bpf, perf, …       parts of the kernel that most escapes begin with, and no build or test needs
    socket             of other families, such as AF_VSOCK, which reach out of any network namespace

The program is classic BPF, as `struct sock_filter` has it. Without one for a machine's processor,
walls stand without the filter.
"""

import errno
import struct
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple


class Processor(NamedTuple):
    """How a kind of processor numbers its calls."""

    audit: int
    """AUDIT_ARCH of <linux/audit.h>."""
    namespaces: tuple[int, int]
    """clone, unshare."""
    sockets: tuple[int, int]
    """socket, socketpair."""
    refused: tuple[int, ...]
    """add_key, request_key, keyctl, perf_event_open, bpf, userfaultfd."""
    second_table: int | None = None
    """From which number on the calls are those of another way to count."""


PROCESSORS = {
    "x86_64": Processor(
        0xC000003E, (56, 272), (41, 53), (248, 249, 250, 298, 321, 323), second_table=0x40000000
    ),
    "aarch64": Processor(0xC00000B7, (220, 97), (198, 199), (217, 218, 219, 241, 280, 282)),
}

ABSENT = (425, 426, 427, 435)
"""io_uring_setup, io_uring_enter, io_uring_register, clone3: the same number everywhere. They are
said not to exist, for then programs have another way."""

FAMILIES = (1, 2, 10, 16)
"""AF_UNIX, AF_INET, AF_INET6, AF_NETLINK: those that a network namespace holds."""

_NEW_USER = 0x10000000
"""CLONE_NEWUSER."""

# instructions of <linux/bpf_common.h>
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _ANSWER = 0x20, 0x15, 0x35, 0x45, 0x06
# offsets in struct seccomp_data; both processors are little-endian
_NUMBER, _PROCESSOR, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000


@cache
def program(machine: str, *, sockets: bool) -> bytes | None:
    """The filter for a kind of processor; `sockets` says whether those of all families may be."""
    kind = PROCESSORS.get(machine)
    if kind is None:
        return None
    # a program for another kind would have other numbers; it ends by SIGSYS
    code = [_step(_LOAD, _PROCESSOR), _step(_EQUAL, kind.audit, 1), _answer(_KILL)]
    code.append(_step(_LOAD, _NUMBER))
    if kind.second_table is not None:
        code += [_step(_AT_LEAST, kind.second_table, 0, 1), _answer(_ERROR | errno.ENOSYS)]
    code += _refuse(kind.refused, errno.EPERM)
    code += _refuse(ABSENT, errno.ENOSYS)
    new_user = [_step(_ANY_BIT, _NEW_USER, 0, 1), _answer(_ERROR | errno.EPERM)]
    code += _by_argument(kind.namespaces, [*new_user, _answer(_ALLOW)])
    if not sockets:
        known = [part for one in FAMILIES for part in (_step(_EQUAL, one, 0, 1), _answer(_ALLOW))]
        code += _by_argument(kind.sockets, [*known, _answer(_ERROR | errno.EAFNOSUPPORT)])
    code.append(_answer(_ALLOW))
    return b"".join(code)


def _refuse(numbers: Iterable[int], error: int) -> list[bytes]:
    return [part for one in numbers for part in (_step(_EQUAL, one, 0, 1), _answer(_ERROR | error))]


def _by_argument(numbers: tuple[int, int], body: list[bytes]) -> list[bytes]:
    """What becomes of two calls, by their first argument."""
    first, second = numbers
    skip = len(body) + 1
    head = [_step(_EQUAL, first, 1), _step(_EQUAL, second, 0, skip)]
    return [*head, _step(_LOAD, _FIRST_ARGUMENT), *body]


def _answer(value: int) -> bytes:
    return _step(_ANSWER, value)


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    """One instruction; how many to leave out when its test holds, and when not."""
    return struct.pack("<HBBI", code, then, otherwise, value)
