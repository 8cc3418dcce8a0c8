"""PlainConsole: a console that shows names as they are written, and obeys nothing that is written in them.

Names of files, tasks, models and desktops come from others, and a terminal takes some characters in them for orders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import IO, Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_ORDERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""Control characters but for line ends and tabs, and those that turn the direction of writing."""
_FILLED = re.compile(" +$", re.MULTILINE)


class PlainConsole(Console):
    """A console without orders in what it prints; its own (colours, the cursor) are not text.

    Neither mark-up (`[red]`) nor codes of pictures (`:A:`) mean anything in it: styles are given beside the text.
    """

    def __init__(
        self,
        *,
        file: IO[str] | None = None,
        stderr: bool = False,
        width: int | None = None,
        highlight: bool = True,
        quiet: bool = False,
    ) -> None:
        super().__init__(
            file=file, stderr=stderr, width=width, highlight=highlight, quiet=quiet, markup=False, emoji=False
        )

    def print(self, *objects: Any, **settings: Any) -> None:
        """Print; where no terminal is, without the blanks that fill tables up to its width."""
        if self.is_terminal or self.quiet:
            super().print(*objects, **settings)
            return
        with self.capture() as captured:
            super().print(*objects, **settings)
        self.file.write(_FILLED.sub("", captured.get()))
        self.file.flush()

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What is printed, a space for each such character."""
        for segment in super().render(renderable, options):
            if segment.control is None and _ORDERS.search(segment.text):
                yield Segment(_ORDERS.sub(" ", segment.text), segment.style)
            else:
                yield segment
