"""The command line: one file for each command, imported only when that command runs."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def program() -> str:
    """How to call this program again, for hints that can be pasted."""
    if shutil.which("deskroll"):
        return "deskroll"
    if Path(sys.argv[0]).name == "deskroll":
        return sys.argv[0]
    beside = Path(sys.executable).parent / "deskroll"  # of an environment that is not activated
    return str(beside) if beside.exists() else f"{sys.executable} -m deskroll"
