"""Refused: what the calculator will not compute."""

from __future__ import annotations


class Refused(Exception):
    """It will not be computed; the text says why, for the model to read."""
