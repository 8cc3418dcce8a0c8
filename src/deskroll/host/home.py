"""Home folders in paths that people write: expanded once, where a setting, a flag or an argument is read."""

from __future__ import annotations

import os
import re

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def expand_home(path: str) -> str:
    """The path with `~` or `~name` at its start expanded, as a shell does; an address, and `./~`, stay as they are.

    Python's own ways change more, or do not agree: `Path` makes `~` of `./~`, and raises where there is no such user.
    """
    return path if _URL.match(path) else os.path.expanduser(path)  # noqa: PTH111  (see above)
