"""Reader: what a visit shows of a page, and what it says of the rest.

Guarantees: nothing is missing from what is shown without a line that says so and how to get it; a summary is told what
is missing from the page that it was made of, and says so, too. No model is asked about a part that the page has not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from deskroll.envs.limited import Bounds, FunctionCrashed, FunctionFailed, LimitExceeded, limited
from deskroll.envs.web.errors import PageError
from deskroll.envs.web.page import Page
from deskroll.envs.web.reducing import LONGEST_TEXT, Text, reduce
from deskroll.envs.web.settings import WebSettings
from deskroll.envs.web.summary import LONGEST_PAGE, summarised
from deskroll.errors import ModelError, plain
from deskroll.models.base import Model
from deskroll.types import Record

_LEAST_ROOM = 100
_BOUNDS = Bounds(seconds=60, cpu_seconds=15, memory_bytes=768 * 2**20, result_bytes=4 * 2**20)


class Visit(Record, frozen=True):
    """What to read."""

    urls: Annotated[list[str], msgspec.Meta(min_length=1, max_length=10)]
    goal: Annotated[str, msgspec.Meta(max_length=2000)] = ""
    start: Annotated[int, msgspec.Meta(ge=0)] = 0
    whole: bool = False


class Reader:
    """Reads pages for one episode."""

    def __init__(self, settings: WebSettings, model: Model | None) -> None:
        self._settings = settings
        self._model = model if settings.summarise else None

    async def read(self, page: Page, asked: Visit, room: int) -> str:
        """The page's text from `start` on, or what a model makes of it for the goal, in about so many characters."""
        reduced = await _text_of(page, whole=asked.whole)
        text = f"{reduced.title}\n\n{reduced.text}" if reduced.title else reduced.text
        if asked.start >= len(text):
            return f"[the page has {len(text)} characters; there is nothing from {asked.start} on]"
        notes = self._notes(page, reduced)
        if self._model is not None and asked.goal:
            said, problem = await _summary(self._model, page.url, text, asked, notes)
            if said:
                return _summary_shown(said, text, asked, notes, room)
            notes = [f"[the page could not be summarised: {problem}; this is its text]", *notes]
        return _shown(text, asked, notes, room)

    def _notes(self, page: Page, reduced: Text) -> list[str]:
        """What is missing from the text."""
        notes = []
        if page.cut:
            notes.append(f"[only the first {self._settings.page_mb:g} MB of the page were read]")
        if reduced.cut:
            notes.append(f"[only the first {LONGEST_TEXT} characters of the page's text are kept]")
        if reduced.left_out:
            notes.append(
                f"[about {reduced.left_out} characters of the page are left out (menus, side columns, lists, forms, "
                "footers or the like); visit it with whole=true for all of its text]"
            )
        return notes


async def _text_of(page: Page, *, whole: bool) -> Text:
    """The page as text: its matter, or the whole of it; in a process of its own."""
    given = msgspec.msgpack.encode((page, whole))
    try:
        reduced = await limited(reduce, given, _BOUNDS, preload=("trafilatura",))
    except LimitExceeded as error:
        hint = "" if whole else "; whole=true takes less"
        raise PageError(f"it cannot be turned into text: {error}{hint}") from None
    except FunctionFailed as error:
        raise PageError(f"it cannot be turned into text ({error})") from None
    except FunctionCrashed:
        raise PageError("it cannot be turned into text: its reader crashed") from None
    text = msgspec.msgpack.decode(reduced, type=Text)
    if text.problem:
        raise PageError(text.problem)
    return text


async def _summary(model: Model, url: str, text: str, asked: Visit, notes: Sequence[str]) -> tuple[str, str]:
    """What the model says, or why it says nothing."""
    end = min(asked.start + LONGEST_PAGE, len(text))
    part = [] if end - asked.start == len(text) else [f"[characters {asked.start} to {end} of {len(text)} are shown]"]
    try:
        said = await summarised(model, url, text[asked.start : end], asked.goal, [*notes, *part])
    except ModelError as error:
        return "", plain(str(error), 150)
    return said, "the model said nothing"


def _summary_shown(said: str, text: str, asked: Visit, notes: Sequence[str], room: int) -> str:
    end = min(asked.start + LONGEST_PAGE, len(text))
    notes = list(notes)
    if end - asked.start < len(text):
        more = f"; {_again(asked, end)} for what follows" if end < len(text) else ""
        notes.append(f"[this summary knows characters {asked.start} to {end} of {len(text)} of the page{more}]")
    room = max(_LEAST_ROOM, room - sum(map(len, notes)))
    if len(said) > room:
        said = f"{said[:room]}\n[cut: the first {room} of {len(said)} characters of the summary are shown]"
    return "\n".join([*notes, said])


def _shown(text: str, asked: Visit, notes: Sequence[str], room: int) -> str:
    end = asked.start + max(_LEAST_ROOM, room - sum(map(len, notes)))
    rest = []
    if end < len(text):
        rest = [f"[cut: characters {asked.start} to {end} of {len(text)} are shown; {_again(asked, end)} for more]"]
    return "\n".join([*notes, text[asked.start : end], *rest])


def _again(asked: Visit, start: int) -> str:
    return f"visit it again with start={start}{' and whole=true' if asked.whole else ''}"
