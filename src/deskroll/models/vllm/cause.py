"""Cause: why a server died, read from its log; and whether another start could do better. Pure.

The last lines of a log say least: what went wrong first is further up, in the words of whoever it happened to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from deskroll.errors import plain
from deskroll.types import Record

_LONGEST = 600
_ERROR = re.compile(r"(?:^|[\])] +)([A-Za-z_.]*(?:Error|Exception): .+)$")
"""The line of a traceback that says what went wrong, also where vLLM has put its own words before it."""
_NO_COMPILER = "install a C++ compiler, with which vLLM compiles on CPUs when it starts: apt-get install -y g++"
_NO_HEADERS = "install the headers of vLLM's Python, with which it compiles on CPUs when it starts"
_NO_NUMA = "install libnuma, which vLLM wants on CPUs: apt-get install -y libnuma1"
_CHECKOUT = "in a checkout, `make vllm` does it"
_NUMA = re.compile(r"Failed to import from vllm\._C\w*: .*libnuma\.so.+cannot open shared object file")
"""A warning: a server dies of it where it then misses what it could not import."""
_DIED_OF_NUMA = re.compile(r"'_OpNamespace' '_C\w*' object has no attribute|libnuma\.so")
_HOPELESS = (
    (re.compile(r"InvalidCxxCompiler: .+"), f"{_NO_COMPILER} ({_CHECKOUT})"),
    (re.compile(r"fatal error: Python\.h: .+"), f"{_NO_HEADERS}: apt-get install -y python3-dev ({_CHECKOUT})"),
    (re.compile(r"fatal error: \S+: No such file.*"), "install what is missing to compile with"),
    (_NUMA, f"{_NO_NUMA} ({_CHECKOUT})"),
    (re.compile(r"\berror: (?:unrecognized arguments|argument -).+"), "check vllm_params"),
)
"""What is wrong with the machine or the settings, not with this one start; and what to do."""


class Cause(Record, frozen=True):
    """What a log says."""

    text: str = ""
    """What went wrong, in a line; empty: it says nothing."""
    to_do: str = ""
    """Of what another start cannot mend: what to do; empty: it may."""


def find_cause(lines: Sequence[str], *, was_ready: bool) -> Cause:
    """Why a server died: before it was ready, what went wrong first, for the rest follows from that; else last."""
    errors = [found[1] for line in lines if (found := _ERROR.search(line))]
    if was_ready:
        return Cause(plain(errors[-1], _LONGEST) if errors else "")
    text = plain(errors[0] if errors else _last_word(lines), _LONGEST)
    for pattern, to_do in _HOPELESS:
        if pattern is _NUMA and not _DIED_OF_NUMA.search(text):
            continue
        if said := next((plain(match[0], _LONGEST) for line in lines if (match := pattern.search(line))), ""):
            return Cause(text if said in text else f"{text}: {said}", to_do)
    return Cause(text)


def _last_word(lines: Sequence[str]) -> str:
    return next((line for line in reversed(lines) if line.strip()), "")
