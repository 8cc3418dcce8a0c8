"""Filters of system calls that the kernel runs (seccomp, classic BPF): made from names, put on the calling process.

Guarantees: what a filter does not name is allowed; a call in another numbering of the same machine (x32, 32-bit
programs) is refused, whichever it is, so that no number means two things. A filter holds for the process and for all
that it starts, and nothing takes it off again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence

from deskroll.host.syscalls import MACHINES, numbers
from deskroll.types import Record

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _JEQ, _JGE, _JSET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data; both machines are little-endian
_ARCHES = dict(zip(MACHINES, (0xC000003E, 0xC00000B7), strict=True))
_X32 = 0x40000000
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
PRETEND = 0
"""As an answer: the call is not made, and its caller is told that it was."""


class When(Record, frozen=True):
    """A test of the low 32 bits of an argument, and what to answer where it holds."""

    answer: int | None = None
    """An error number; None: the call is allowed."""
    equals: int | None = None
    bits: int = 0
    """Any of them is set; looked at where nothing has to be equal."""


class Check(Record, frozen=True):
    """What is asked about one argument of a call: the first test that holds decides."""

    tests: tuple[When, ...]
    argument: int = 0
    otherwise: int | None = None
    """The answer where no test holds."""


class Rules(Record, frozen=True):
    """What a filter says."""

    forbidden: Collection[str]
    """Calls that are answered with EPERM, as if a privilege was missing."""
    absent: Collection[str] = ()
    """Calls that are answered with ENOSYS, as if this kernel had none: programs then do it in the old way."""
    checks: Mapping[str, Check] = {}
    """Calls that depend on an argument."""


def only_families(families: Iterable[int]) -> Check:
    """The check of `socket` that lets these address families pass."""
    return Check(tests=tuple(When(equals=family) for family in families), otherwise=errno.EAFNOSUPPORT)


def program(rules: Rules, machine: str = "") -> bytes | None:
    """The filter as the kernel and bubblewrap take it; None where this kind of machine has no numbers here."""
    machine = machine or platform.machine()
    known = numbers(machine)
    if not known:
        return None
    code = [
        _op(_LOAD, _ARCH),
        _op(_JEQ, _ARCHES[machine], 1, 0),
        _answer(errno.EPERM),
        _op(_LOAD, _NUMBER),
        _op(_JGE, _X32, 0, 1),
        _answer(errno.ENOSYS),
    ]
    for name, check in rules.checks.items():
        code += _on_call(known[name], _checked(check))
    for names, error in ((rules.forbidden, errno.EPERM), (rules.absent, errno.ENOSYS)):
        for name in names:
            code += _on_call(known[name], [_answer(error)])
    return b"".join([*code, _answer(None)])


def install(code: bytes) -> None:
    """Put a filter on the calling process, which must have given up gaining privileges."""
    libc = ctypes.CDLL(None, use_errno=True)
    held = ctypes.create_string_buffer(code, len(code))
    described = struct.pack("@HP", len(code) // 8, ctypes.addressof(held))  # struct sock_fprog
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, described, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot filter system calls: {os.strerror(error)}")


def _on_call(number: int, then: Sequence[bytes]) -> list[bytes]:
    return [_op(_JEQ, number, 0, len(then)), *then]


def _checked(check: Check) -> list[bytes]:
    code = [_op(_LOAD, _ARGUMENTS + 8 * check.argument)]
    for test in check.tests:
        kind, value = (_JSET, test.bits) if test.equals is None else (_JEQ, test.equals)
        code += [_op(kind, value, 0, 1), _answer(test.answer)]
    return [*code, _answer(check.otherwise)]


def _answer(error: int | None) -> bytes:
    return _op(_RETURN, _ALLOW if error is None else _ERRNO | error)


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)
