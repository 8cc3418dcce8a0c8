"""What is left of a local desktop when its owner and its keeper were both killed before they could clean up.

Guarantees: `remove` takes away exactly what carries the desktop's id: its processes (by pid and start time, by control
group, by the mark in their environment), its control groups and its folder. Doing so twice, or beside a keeper that is
still at it, does no harm.
"""

from __future__ import annotations

import contextlib
import os
import signal

from deskroll.desktops.guest.marks import end_all_marked
from deskroll.desktops.notes import NoteFolder
from deskroll.desktops.providers.local.places import LocalNote
from deskroll.host.control_group import ControlGroup
from deskroll.host.owner import process_start


def remove(notebook: NoteFolder[LocalNote], note: LocalNote) -> None:
    """Remove all of it. The caller has made sure that nobody owns it."""
    for pid, start in ((note.keeper_pid, note.keeper_start), (note.sandbox_pid, note.sandbox_start)):
        if pid and process_start(pid) == start:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    end_all_marked(note.id)
    ControlGroup.existing(note.id).remove()
    notebook.close(note.id)
