"""What the page shows of one episode when it is opened: steps, what the agent saw, where it acted, what was said.

All text that comes from tasks, models or desktops is made printable and cut here; escaping it for HTML and JSON is the
business of `html.py`. Addresses of files are made of the run's own names, quoted: none can name another place.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from deskroll.actions import Action
from deskroll.desktops.base import DesktopSpec
from deskroll.errors import InputError, MissingDependency, StoreError, plain
from deskroll.models.messages import Message
from deskroll.report import words
from deskroll.report.results import Results
from deskroll.report.screens import Pictures, Screens
from deskroll.store import AttemptReader, paths
from deskroll.types import Episode, Record, Step

MAX_STEPS = 200
MAX_MESSAGES = 200
_LONG, _SHORT = 4_000, 300
_NAMED_FILES = (paths.RECORDING, paths.CONVERSATION, paths.STEPS, paths.EPISODE_JSON)
"""In this order, before all others."""


class Mark(Record, frozen=True, omit_defaults=False):
    """Where an action went, in parts of the screen's width and height."""

    x: float
    y: float
    what: str


class StepView(Record, frozen=True, omit_defaults=False):
    """One step of an episode, to be looked at."""

    index: int
    thought: str
    actions: list[str]
    results: list[str]
    took: str
    before: int | None
    """The place among the episode's pictures of what the agent saw when it decided."""
    screen: int | None
    """The place of what was to be seen afterwards."""
    marks: list[Mark]


class Picture(Record, frozen=True, omit_defaults=False):
    """A screen: on the page itself, in the run's folder, or both."""

    data: str
    """A data URL; empty where the page does not hold it."""
    file: str
    """Its address as seen from the page; empty where there is none."""


class File(Record, frozen=True, omit_defaults=False):
    """A file of the attempt."""

    name: str
    address: str


class Said(Record, frozen=True, omit_defaults=False):
    """One message of the conversation."""

    role: str
    text: str


class EpisodeView(Record, frozen=True, kw_only=True, omit_defaults=False):
    """What is shown when an episode is opened."""

    steps: tuple[StepView, ...] = ()
    screens: tuple[Picture, ...] = ()
    start: int | None = None
    """The place among the pictures of what the model saw before its first action."""
    conversation: tuple[Said, ...] = ()
    folder: str
    """Where the attempt's files are."""
    files: list[File]
    note: str = ""


class Viewer:
    """Makes the views of one page: its pictures share a budget, and its links begin where the page lies."""

    def __init__(self, results: Results, screens: Screens, beside: Path | None, *, talk: bool) -> None:
        self.pictures = Pictures(screens)
        self._run = results.run
        self._screens = screens
        self._talk = talk
        """Whether what was said is on the page itself."""
        self._screen = _screen_size(results.info.config)
        linked = beside is not None and results.run.storage.local
        self._way = quote(os.path.relpath(results.run.root, beside)) if linked else ""

    def view(self, episode: Episode) -> EpisodeView:
        """The steps, screens and files of the attempt that counts."""
        attempt = self._run.attempt(episode.key, episode.attempt)
        folder = plain(f"{self._run.root}/{attempt.folder}", _LONG)
        empty = EpisodeView(folder=folder, files=self._files(attempt))
        try:
            steps = attempt.steps()
        except (StoreError, MissingDependency) as error:
            return msgspec.structs.replace(empty, note=long(f"Its steps cannot be read: {error}"))
        start = _first_screen(attempt, steps)
        pictures = self._pictured(attempt, start, steps)
        places = {name: place for place, name in enumerate(pictures)}
        return msgspec.structs.replace(
            empty,
            steps=tuple(self._steps(steps[:MAX_STEPS], places.get(start), places)),
            screens=tuple(pictures.values()),
            start=places.get(start),
            conversation=tuple(_conversation(attempt)) if self._talk else (),
            note=_note(steps),
        )

    def _steps(self, steps: Iterable[Step], start: int | None, places: Mapping[str, int]) -> list[StepView]:
        """Each step with the screen before it: the last one that any step before it has seen."""
        views, before = [], start
        for step in steps:
            after = places.get(step.screen)
            views.append(_step(step, before, after, self._screen))
            before = before if after is None else after
        return views

    def _pictured(self, attempt: AttemptReader, start: str, steps: Sequence[Step]) -> dict[str, Picture]:
        """Each screen once, by its name; one that can neither be read nor linked is left out."""
        names = list(filter(None, dict.fromkeys([start, *(step.screen for step in steps[:MAX_STEPS])])))
        last = next((step.screen for step in reversed(steps) if step.screen), "")
        embedded = {Screens.NONE: set[str](), Screens.LAST: {last}}.get(self._screens, set(names))
        pictures = {}
        for name in dict.fromkeys([*names, last] if last else names):
            data = self._embedded(attempt, name) if name in embedded else ""
            file = self._address(attempt, name)
            if data or file:
                pictures[name] = Picture(data=data, file=file)
        return pictures

    def _embedded(self, attempt: AttemptReader, name: str) -> str:
        try:
            return self.pictures.url(attempt.image(name)) or ""
        except StoreError:
            self.pictures.left_out += 1
            return ""

    def _files(self, attempt: AttemptReader) -> list[File]:
        if not self._way:
            return []
        names = [name for name in attempt.files() if "/" not in name]
        order = {name: place for place, name in enumerate(_NAMED_FILES)}
        names.sort(key=lambda name: (order.get(name, len(order)), name))
        return [File(name=plain(name, _SHORT), address=self._address(attempt, name)) for name in names]

    def _address(self, attempt: AttemptReader, name: str) -> str:
        try:
            return f"{self._way}/{quote(attempt.folder)}/{quote(paths.inside(name))}" if self._way else ""
        except StoreError:  # a name that leads out of its folder
            return ""


def _screen_size(config: Mapping[str, object]) -> tuple[int, int]:
    """Of the run's desktops, in pixels: positions of actions are theirs, whatever the size of a picture."""
    options = config.get("env_options")
    wanted = options if isinstance(options, Mapping) else {}
    size = (wanted.get("screen_width"), wanted.get("screen_height"))
    usual = (DesktopSpec().width, DesktopSpec().height)
    width, height = (
        each if isinstance(each, int) and each > 0 else other for each, other in zip(size, usual, strict=True)
    )
    return width, height


def _conversation(attempt: AttemptReader) -> list[Said]:
    try:
        stored = attempt.messages()
    except StoreError:
        return []
    said = [_said(each) for each in stored[:MAX_MESSAGES]]
    if more := len(stored) - len(said):
        said.append(Said(role="", text=f"{words.counted(more, 'more message')} in {paths.CONVERSATION}."))
    return said


def _said(stored: bytes) -> Said:
    try:
        message = Message.restore(stored, _no_image)
    except (InputError, UnicodeDecodeError) as error:
        return Said(role="?", text=short(f"cannot be read: {error}"))
    parts = [message.text, *(f"[{name}]" for name in message.names)]
    parts += [f"{call.name}({call.arguments})" for call in message.calls]
    return Said(role=message.role, text=long("\n".join(filter(None, parts))))


def _no_image(name: str) -> bytes:
    raise StoreError(f"{name} is not needed to read what was said")


def _note(steps: Sequence[Step]) -> str:
    if not steps:
        return "It has no steps."
    more = len(steps) - MAX_STEPS
    return f"{words.counted(more, 'more step')} in the run's folder." if more > 0 else ""


def _first_screen(attempt: AttemptReader, steps: Sequence[Step]) -> str:
    """The name of the last screen that the first request showed; empty where it showed none."""
    sent = steps[0].sent if steps else None
    try:
        messages = attempt.messages()[: sent.messages if sent is not None else None]
    except StoreError:
        return ""
    found = ""
    for stored in messages:
        try:
            message = Message.restore(stored, attempt.image)
        except (InputError, UnicodeDecodeError):
            continue
        if message.role == "assistant":
            break
        found = message.names[-1] if message.names else found
    return found


def _step(step: Step, before: int | None, after: int | None, screen: tuple[int, int]) -> StepView:
    said = step.thought or (step.completion.text if step.completion else "")
    return StepView(
        index=step.index,
        thought=long(said),
        actions=[shown_action(action) for action in step.actions],
        results=[short(result) for result in (*(f"note: {each}" for each in step.notes), *step.results) if result],
        took=times(step.seconds),
        before=before,
        screen=after,
        marks=[mark for action in step.actions if (mark := _mark(action, screen))],
    )


def _mark(action: Action, screen: tuple[int, int]) -> Mark | None:
    """Where an action went; None where it has no place of its own."""
    x, y = getattr(action, "x", None), getattr(action, "y", None)
    if x is None or y is None:
        return None
    width, height = screen
    return Mark(
        x=round(min(max(x / width, 0.0), 1.0), 5), y=round(min(max(y / height, 0.0), 1.0), 5), what=shown_action(action)
    )


def times(seconds: Mapping[str, float]) -> str:
    """Durations by their names, those that are worth a word."""
    return ", ".join(f"{plain(name, 30)} {words.duration(took)}" for name, took in seconds.items() if took >= 0.001)


def shown_action(action: Action) -> str:
    """An action as a person reads it: `CLICK x=10 y=20`."""
    fields = msgspec.to_builtins(action)
    kind = fields.pop("type")
    return short(" ".join([kind, *(f"{name}={_value(value)}" for name, value in fields.items())]))


def _value(value: object) -> str:
    return msgspec.json.encode(value).decode() if not isinstance(value, (int, float)) else f"{value:g}"


def long(text: str) -> str:
    """A text of several lines, as the page shows it."""
    return plain(text, _LONG, keep="\n\t")


def short(text: str) -> str:
    """A text of one line, as the page shows it."""
    return plain(text, _SHORT)
