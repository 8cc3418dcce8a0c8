"""The command line: one file for each command, imported only when that command runs."""

from __future__ import annotations

import shutil
import sys


def program() -> str:
    """How to call this program again, for hints that can be pasted."""
    return "deskroll" if shutil.which("deskroll") else sys.argv[0]


def counted(number: int, what: str) -> str:
    """`1 desktop`, `2 desktops`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
