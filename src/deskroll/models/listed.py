"""Whether a model is among those that its server lists. Not being there proves nothing: some know names besides."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from deskroll.errors import plain

_VERSION = re.compile(r"[-@:](latest|\d{3,}|\d{4}-\d{2}-\d{2})")
"""What a list may have behind a name that stands for its newest version."""
_MOST_SHOWN = 5


def is_listed(name: str, listed: Sequence[str]) -> bool:
    """Whether a server that lists these has that model, as far as such lists tell."""
    return any(_stands_for(name, each) for each in listed)


def _stands_for(name: str, listed: str) -> bool:
    bare = listed.removeprefix("models/")
    # `vendor/*` is a gateway's; `model:free` is a variant of `model`.
    if name in (listed, bare) or fnmatchcase(name, listed) or name.partition(":")[0] == bare:
        return True
    return bare.startswith(name) and _VERSION.fullmatch(bare, len(name)) is not None


def unlisted(name: str, server: str, listed: Sequence[str]) -> str:
    """What to tell of a name that is not there, with those that are most like it."""
    near = difflib.get_close_matches(name, listed, _MOST_SHOWN)
    some = near or sorted(listed)[:_MOST_SHOWN]
    more = " ..." if len(some) < len(listed) and not near else ""
    has = ", ".join(plain(each, 100) for each in some) + more
    return (
        f"{server} does not list a model {plain(name, 200)!r}; {'it has' if not near else 'the nearest that it has'}: "
        f"{has}. It is asked all the same, and if it refuses, the run stops"
    )
