"""Times, as people say them."""

from __future__ import annotations


def span(seconds: float) -> str:
    """So long: 4 s, 2 min 05 s, 1 h 30 min."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"
