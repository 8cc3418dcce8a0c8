"""Suites that are part of deskroll: folders of tasks in OSWorld's format, with all that they need.

desk/suite.json                    {domain: [ids]}
desk/examples/<domain>/<id>.json   one task each, with its reference solution and its near misses
desk/inputs/                       the files that their set-up puts into the desktop
"""

from pathlib import Path

DESK = Path(__file__).parent / "desk"
"""Tasks on Debian's own programs; each can be solved by mouse and keyboard, offline."""
