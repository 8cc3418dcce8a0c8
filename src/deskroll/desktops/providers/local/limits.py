"""Limits of each process of a desktop: open files, no core files, and processes where the user namespace is its own.

Memory and processes of all of them together are the control group's (`host/control_group.py`), where this process may
make one; without one, `memory_mb` holds for each process. `doctor` tells which of the two this machine has.
"""

from __future__ import annotations

import resource

from deskroll.desktops.base import DesktopSpec


def set_rlimits(spec: DesktopSpec, *, grouped: bool, own_namespace: bool) -> None:
    """Limit the calling process and its children."""
    if own_namespace:
        # Counted within the user namespace, so one desktop's processes do not use up another's. Without one it would
        # count everything that the user runs.
        _lower(resource.RLIMIT_NPROC, spec.processes)
    _lower(resource.RLIMIT_NOFILE, 4096)
    _lower(resource.RLIMIT_CORE, 0)
    if not grouped:
        _lower(resource.RLIMIT_DATA, spec.memory_mb * 1024 * 1024)


def _lower(what: int, limit: int) -> None:
    hard = resource.getrlimit(what)[1]
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(what, (limit, limit))
