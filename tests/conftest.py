"""What all tests share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


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
