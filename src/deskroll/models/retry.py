"""How long to wait before a request is made again.

Without a word from the server: at random between nothing and a limit that doubles with each failure (full jitter), so
that clients which failed together do not return together. With one (`Retry-After`), as long as it says and up to a
quarter longer. Never beyond `longest`.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from deskroll.host.backoff import Backoff

_SPREAD = 0.25


def pause(failures: int, after: float | None, *, base: float, longest: float) -> float:
    """Seconds to wait after so many failures in a row, when the server asked for `after` (or for nothing)."""
    if after:
        return min(longest, after * (1 + _SPREAD * random.random()))  # noqa: S311  (nobody gains by guessing it)
    return Backoff(base=base, longest=longest).pause(failures) * random.random()  # noqa: S311


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server asks to wait for, by `retry-after-ms` or `Retry-After`; None where it does not."""
    if (ms := _number(headers.get("retry-after-ms"))) is not None:
        return ms / 1000
    text = headers.get("Retry-After")
    if text is None:
        return None
    if (seconds := _number(text)) is not None:
        return seconds
    try:
        # By the server's own clock, where it says what that shows: ours may be wrong.
        return max(0.0, parsedate_to_datetime(text).timestamp() - _server_time(headers.get("Date")))
    except (ValueError, OverflowError, OSError):
        return None


def _server_time(date: str | None) -> float:
    try:
        return time.time() if date is None else parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError, OSError):
        return time.time()


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None
