"""OSWorld's own task files, where they are at hand. Nothing of them is part of the project."""

from __future__ import annotations

from pathlib import Path

import pytest

OSWORLD = Path(__file__).parents[3] / "shared" / "osworld"
"""Where they are, in the workshop."""
needs_osworld = pytest.mark.skipif(not OSWORLD.is_dir(), reason="OSWorld's task files are not here")
