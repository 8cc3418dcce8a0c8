"""Filters of system calls: what they say for every call on every kind of machine, and what they do to a process."""

from __future__ import annotations

import errno
import re
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskroll.desktops.providers.local import syscalls as of_desktops
from deskroll.host import code_rules as of_code
from deskroll.host import seccomp
from deskroll.host.seccomp import Check, Rules, When
from deskroll.host.syscalls import MACHINES, numbers

ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
I386, X32 = 0x40000003, 0x40000000
ALLOWED = None
HEADERS = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")


def answer(code: bytes, arch: int, number: int, *arguments: int) -> int | None:
    """What the kernel would answer, by reading the filter as it does: an error number, or None."""
    six = (*arguments, *[0] * 6)[:6]
    data = struct.pack("<iIQ6Q", struct.unpack("<i", struct.pack("<I", number))[0], arch, 0, *six)
    place, held = 0, 0
    while True:
        kind, yes, no, value = struct.unpack_from("<HBBI", code, place * 8)
        place += 1
        match kind:
            case 0x20:
                held = struct.unpack_from("<I", data, value)[0]
            case 0x15:
                place += yes if held == value else no
            case 0x35:
                place += yes if held >= value else no
            case 0x45:
                place += yes if held & value else no
            case 0x06:
                return ALLOWED if value == 0x7FFF0000 else value - 0x00050000
            case _:
                raise AssertionError(f"no instruction: {kind:#x}")


def filtered(rules: Rules, machine: str) -> bytes:
    code = seccomp.program(rules, machine)
    assert code is not None
    return code


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("rules", [of_desktops.RULES, of_code.RULES], ids=["desktops", "code"])
def test_what_is_named_is_refused_and_nothing_else(rules: Rules, machine: str) -> None:
    code, arch, known = filtered(rules, machine), ARCHES[machine], numbers(machine)
    said = {number: answer(code, arch, number) for number in range(512)}
    checked = {known[name] for name in rules.checks}
    refused = {number for number, error in said.items() if error is not ALLOWED} - checked
    assert refused == {known[name] for name in (*rules.forbidden, *rules.absent)}
    assert {said[known[name]] for name in rules.forbidden} == {errno.EPERM}
    assert {said[known[name]] for name in rules.absent} == {errno.ENOSYS}


@pytest.mark.parametrize("rules", [of_desktops.RULES, of_code.RULES], ids=["desktops", "code"])
@given(number=st.integers(0, 2**32 - 1))
def test_other_numberings_are_refused_whole(rules: Rules, number: int) -> None:
    code = filtered(rules, "x86_64")
    assert answer(code, I386, number) == errno.EPERM
    assert answer(code, ARCHES["aarch64"], number) == errno.EPERM
    assert answer(code, ARCHES["x86_64"], X32 | number) == errno.ENOSYS


@given(flags=st.integers(0, 2**64 - 1))
def test_nothing_with_devices_can_be_mounted_in_a_desktop(flags: int) -> None:
    code = filtered(of_desktops.RULES, "x86_64")
    said = answer(code, ARCHES["x86_64"], numbers("x86_64")["mount"], 0, 0, 0, flags)
    kernels = flags & 0xFFFF if flags & 0xFFFF0000 == 0xC0ED0000 else flags  # a magic number, which it takes away
    if not kernels & 4 and (kernels & 32 or not kernels & (0x3000 | 0b1111 << 17)):
        assert said in (errno.EPERM, seccomp.PRETEND)


@pytest.mark.parametrize("machine", MACHINES)
def test_sockets_of_desktops(machine: str) -> None:
    code, call = filtered(of_desktops.RULES, machine), numbers(machine)["socket"]
    said = {family: answer(code, ARCHES[machine], call, family) for family in range(64)}
    allowed = {family for family, error in said.items() if error is ALLOWED}
    assert allowed == {socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK}
    assert said[socket.AF_VSOCK] == errno.EAFNOSUPPORT


@given(st.lists(st.tuples(st.sampled_from([None, 1, 13]), st.booleans(), st.integers(1, 255))), st.integers(0, 511))
def test_the_first_test_that_holds_decides(tests: list[tuple[int | None, bool, int]], value: int) -> None:
    whens = tuple(When(answer=a, equals=v) if equal else When(answer=a, bits=v) for a, equal, v in tests)
    rules = Rules(forbidden=(), checks={"mount": Check(tests=whens, argument=3, otherwise=38)})
    expected = next((a for a, equal, v in tests if (value == v if equal else value & v)), 38)
    call = numbers("aarch64")["mount"]
    assert answer(filtered(rules, "aarch64"), ARCHES["aarch64"], call, 7, 7, 7, value, 7) == expected


def test_an_unknown_machine_has_none() -> None:
    assert seccomp.program(of_desktops.RULES, "vax") is None


@pytest.mark.parametrize("machine", MACHINES)
@given(pid=st.integers(2, 2**22), other=st.integers(-(2**31), 2**31 - 1))
def test_a_call_among_others_reaches_itself_alone(machine: str, pid: int, other: int) -> None:
    rules = of_code.rules_among_others(pid)
    code, known = filtered(rules, machine), numbers(machine)
    for name in ("kill", "tgkill", "prlimit64", "sched_setaffinity"):
        itself = {pid} if name in ("kill", "tgkill") else {pid, 0}
        said = {each: answer(code, ARCHES[machine], known[name], each & 0xFFFFFFFF) for each in (pid, 0, -1, other)}
        assert {each for each, error in said.items() if error is ALLOWED} == itself & set(said)


@pytest.mark.skipif(not HEADERS.exists(), reason="needs the kernel's headers of an x86-64 machine")
def test_numbers_are_the_kernels() -> None:
    theirs = {name: int(number) for name, number in re.findall(r"__NR_(\w+) (\d+)", HEADERS.read_text())}
    ours = numbers("x86_64")
    assert {name: theirs.get(name, number) for name, number in ours.items()} == ours


def test_it_holds_for_the_process_and_its_children() -> None:
    code = (
        "import ctypes, subprocess\nfrom deskroll.host import seccomp\n"
        "ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)\n"
        "seccomp.install(seccomp.program(seccomp.Rules(forbidden=('sethostname', 'chroot'))))\n"
        "print(subprocess.run(['chroot', '/', 'true'], stderr=subprocess.PIPE, text=True).stderr, end='')\n"
        "print(open('/proc/self/status').read())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Operation not permitted" in run.stdout
    assert "Seccomp:\t2" in run.stdout
