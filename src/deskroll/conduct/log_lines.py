"""Log lines on a console that shows progress: above it, one a line; from the level on that $DESKROLL_LOG names."""

from __future__ import annotations

import logging
import os
import re
import threading
import time

from rich.console import Console

from deskroll.errors import InputError, plain
from deskroll.store.names import NAMED_BY

_LONGEST = 20_000
"""Characters of a line: a traceback is shown whole."""
_NAME = re.compile(r"(?:^|\s)[^\s/]+/\d+/\S+/\d+#\d+\b")
"""An attempt's name."""
_LEVELS = ("debug", "info", "warning", "error", "critical")


_shown: list[_Lines] = []
"""Those that show lines now: runs in threads share one logger, and the last one leaves it as the first found it."""
_before: list[tuple[int, bool]] = []
_changing = threading.Lock()


class LogLines:
    """Log lines above the progress, for the length of a block."""

    def __init__(self, console: Console) -> None:
        self._handler = _Lines(console)
        self._logger = logging.getLogger("deskroll")

    def __enter__(self) -> LogLines:
        level = _level()
        with _changing:
            if not _shown:
                _before[:] = [(self._logger.level, self._logger.propagate)]
                self._logger.setLevel(level)
                self._logger.propagate = False
            _shown.append(self._handler)
            self._logger.addHandler(self._handler)
        return self

    def __exit__(self, *exc: object) -> None:
        with _changing:
            _shown.remove(self._handler)
            self._logger.removeHandler(self._handler)
            if not _shown:
                level, self._logger.propagate = _before[0]
                self._logger.setLevel(level)


def _level() -> str:
    word = os.environ.get("DESKROLL_LOG", "").strip() or "info"
    if word.lower() not in _LEVELS:
        raise InputError(f"DESKROLL_LOG is {plain(word)!r}; allowed: {', '.join(_LEVELS)}")
    return word.upper()


class _Lines(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._explained = False

    def emit(self, record: logging.LogRecord) -> None:
        style = {"WARNING": "yellow", "ERROR": "red"}.get(record.levelname, "dim")
        message = plain(record.getMessage(), _LONGEST, keep="\n")
        if not self._explained and (found := _NAME.search(message)):
            self._explained = True
            message = f"{message[: found.end()]} ({NAMED_BY}){message[found.end() :]}"
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        self._console.print(
            f"{at} {message}",
            style=style,
            highlight=False,
            soft_wrap=True,
        )
