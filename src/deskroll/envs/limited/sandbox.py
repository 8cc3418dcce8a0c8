"""What the inside of the sandbox of confined functions looks like, and the command that makes it.

As `host/bubblewrap.py` makes it. Inside: what Python imports from, each folder where it is outside. Nothing can be
written to: calls share the sandbox, and one could leave something for another to find. Of the folders on Python's path
neither a home as a whole nor the root is seen, whatever else lies there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from deskroll.host import bubblewrap
from deskroll.host.bubblewrap import Command, Inside


def command(program: Sequence[str], path: Sequence[str], environment: dict[str, str]) -> Command:
    """The command that runs a Python with these arguments, given its path."""
    python = Path(sys.executable).resolve()
    inside = Inside(
        host_name="limited",
        folders={folder: folder for folder in _folders([str(Path(sys.base_prefix).resolve()), *path])},
        rooms={},
        work="/",
        environment=environment,
        etc=("ld.so.cache", "localtime", "mime.types"),
        processes=True,
    )
    # Not --die-with-parent: that is the thread that started it, and threads share a server.
    options = ["--as-pid-1"]
    return bubblewrap.command(inside, [str(python), *program], options=options, needed_by="a function within limits")


def _folders(path: Sequence[str]) -> list[str]:
    """The folders to be seen, without those that lie in others."""
    home = Path.home()
    wanted = [each for each in map(Path, path) if each.is_dir() and not home.is_relative_to(each)]
    found: list[Path] = []
    for each in sorted(set(wanted), key=lambda folder: len(folder.parts)):
        if not any(each.is_relative_to(other) for other in (Path("/usr"), *found)):
            found.append(each)
    return [str(each) for each in found]
