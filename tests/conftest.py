"""What all tests share."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.commands import Commands, clean_environment

# Whoever starts the tests in the background, or with nohup, has these ignored; commands would inherit and respect that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# Property tests judge what is done, not how long it takes on a busy machine.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

LONGEST = ("suites", "rollout/test_nothing_lost", "seeds/test_documents", "desktops", "seeds", "rollout", "x11")
"""What paths of tests begin with that take minutes, in the order in which they are run."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest comes first: where several run at a time, none waits for the last of them in the end."""
    here = Path(__file__).parent

    def rank(item: pytest.Item) -> int:
        path = item.path.relative_to(here).as_posix()
        return next((n for n, start in enumerate(LONGEST) if path.startswith(start)), len(LONGEST))

    items.sort(key=rank)


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
