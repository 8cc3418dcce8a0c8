"""What all tests share."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import Commands, clean_environment

# Whoever starts the tests in the background has SIGINT ignored, which commands would inherit and respect.
signal.signal(signal.SIGINT, signal.default_int_handler)


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
def env(tmp_path: Path) -> dict[str, str]:
    """An environment without keys, with a place of its own for sockets."""
    return clean_environment(tmp_path / "run")
