"""Control groups: what is left of processes that are gone is known, and nothing else is touched."""

from __future__ import annotations

import os

import pytest

from deskroll.host.control_group import ControlGroup, can_make_groups, group_parents, sweep_groups
from deskroll.host.owner import owner_mark


@pytest.mark.skipif(not can_make_groups(), reason="there are no control groups")
def test_groups_of_dead_processes_are_swept_and_others_are_not() -> None:
    mine = ControlGroup.create_own("test", memory_mb=64, processes=64)
    desktop = ControlGroup.create(f"local-{os.getpid()}", memory_mb=64, processes=64)
    assert mine is not None
    assert desktop is not None
    here = owner_mark().partition("-")[0]
    others = [f"{here}-4194305-1", f"{here}-{os.getpid()}-1"]  # a number that no process can have; ours, before us
    dead = [parent / f"py-{other}-0" for parent in group_parents() for other in others]
    for folder in dead:
        folder.mkdir()
    try:
        sweep_groups()
        assert not any(folder.exists() for folder in dead)
        assert mine.memory_in_use() is not None
        assert desktop.memory_in_use() is not None
    finally:
        mine.remove()
        desktop.remove()
