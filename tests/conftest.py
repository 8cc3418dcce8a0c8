"""What all tests share."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import Commands, clean_environment

# Whoever starts the tests in the background, or with nohup, has these ignored; commands would inherit and respect that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

ALONE = ("desktops", "envs/osworld", "envs/test_osworld", "osworld", "rollout", "suites", "x11")
"""What paths of tests that are all `alone` begin with: they load the machine, look at all of it, or have deadlines."""


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what must have nothing beside it."""
    here = Path(__file__).parent
    for item in items:
        if item.path.relative_to(here).as_posix().startswith(ALONE):
            item.add_marker("alone")


@pytest.fixture(autouse=True, scope="session")
def runtime_folder() -> Iterator[Path]:
    """A folder of our own, so that desktops of other people on this machine are neither seen nor touched.

    Not pytest's: that one is closed to other users, and where tests run as root each desktop is one.
    """
    with tempfile.TemporaryDirectory(prefix="deskroll-test-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        os.environ["DESKROLL_RUNTIME_DIR"] = name
        yield folder
        del os.environ["DESKROLL_RUNTIME_DIR"]


@pytest.fixture(scope="module")
def deskroll() -> Iterator[Commands]:
    """The command line, each command in a process that has imported everything."""
    with Commands() as commands:
        yield commands


@pytest.fixture
def env() -> Iterator[dict[str, str]]:
    """An environment without keys, with a place of its own for sockets, whose paths must be short."""
    with tempfile.TemporaryDirectory(prefix="deskroll-run-") as folder:
        Path(folder).chmod(0o711)  # as `runtime_folder`: each desktop is another user
        yield clean_environment(Path(folder))
