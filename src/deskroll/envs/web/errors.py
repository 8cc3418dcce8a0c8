"""PageError: why one page or one query brought nothing. Its text is for the model to read; the episode goes on."""

from __future__ import annotations

from deskroll.errors import ToolError


class PageError(ToolError):
    """A page cannot be had, or a query has no result; the message says why, in words of our own."""
