"""A video of each episode, made of its stored screens: `<dir>/<phase>/<round>/<task>/<sample>/recording.mp4`.

Each screen is shown for as long as it stood: until the next step had ended, within bounds. The file is as a recording's
(H.264, 4:2:0, even sizes, its index in front), so browsers play it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deskroll.errors import MissingDependency
from deskroll.export.episodes import beginning, step_seconds
from deskroll.export.pictures import fitted, open_image
from deskroll.store import AttemptReader, paths
from deskroll.types import Episode, Step

try:
    from deskroll.desktops.x11.capture import Frame
    from deskroll.desktops.x11.recording import FilmWriter
except ImportError as error:
    raise MissingDependency("films need the extra 'local': pip install 'deskroll[local]'") from error

_RATE, _MOST_RATE = 5, 60
"""Pictures a second that the file announces, at least and at most; each one has its own time."""


@dataclass(frozen=True)
class Pace:
    """For how long a screen is shown, in seconds."""

    shortest: float = 0.5
    longest: float = 5.0

    def within(self, seconds: float) -> float:
        """That long, within the bounds."""
        return min(max(seconds, self.shortest), self.longest)


@dataclass(frozen=True)
class FilmLayout:
    """A film for every episode that has screens."""

    pace: Pace = Pace()

    def place(self, episode: Episode) -> str:
        """A folder as in the run, less the attempt."""
        key = episode.key
        return f"{paths.escape(key.phase)}/{key.round}/{paths.escape(key.task)}/{key.sample}"

    def fill(self, episode: Episode, attempt: AttemptReader, folder: Path) -> bool:
        """Make the film."""
        steps = attempt.steps()
        shown = scenes(steps, beginning(steps, attempt.files()), self.pace)
        if not shown:
            return False
        film(attempt, shown, folder / paths.RECORDING)
        return True


def scenes(steps: Sequence[Step], first: str, pace: Pace) -> list[tuple[str, float]]:
    """Which screen is shown for how long, in order; `first` was seen before anything was done."""
    shown: list[tuple[str, float]] = []
    current = first
    for step in steps:
        if current:
            shown.append((current, pace.within(step_seconds(step))))
        current = step.screen or current
    if current and (not shown or shown[-1][0] != current):  # how it ended
        shown.append((current, pace.within((pace.shortest + pace.longest) / 2)))
    return shown


def film(attempt: AttemptReader, shown: Sequence[tuple[str, float]], path: Path) -> None:
    """Write the film; all of it has the size of the first screen."""
    first = open_image(attempt.image(shown[0][0]), shown[0][0])
    rate = _rate(min(seconds for _, seconds in shown))
    with contextlib.closing(FilmWriter(path, first.width, first.height, rate)) as writer:
        at, name, frame = 0.0, "", None
        for each, seconds in shown:
            if each != name or frame is None:
                picture = fitted(open_image(attempt.image(each), f"{attempt.folder}/{each}"), first.size)
                frame = Frame(first.width, first.height, first.width * 4, picture.tobytes("raw", "BGRX"))
                name = each
            writer.write(frame, at)
            at += seconds
        # The last picture of a file has a length of its own; where that is all of its time, it is there already.
        if frame is not None and round(shown[-1][1] - 1 / rate, 3) > 0:
            writer.write(frame, at - 1 / rate)


def _rate(shortest: float) -> int:
    """The rate at which no picture is longer than the shortest time that one is shown."""
    return max(_RATE, math.ceil(1 / max(shortest, 1 / _MOST_RATE)))
