"""What evaluators look at, whosever they are."""

from __future__ import annotations

LARGEST_FILE = 64 * 1024 * 1024
"""Bytes of a file of a desktop that is judged; a larger one is a 0."""
