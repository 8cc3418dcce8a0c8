"""The vocabulary: frozen records that cross boundaries, and the enums that say why something ended.

Everything here is plain data (msgspec structs): it goes to the journal and over the wire as it is. What a person
writes (config, task files) is read elsewhere by pydantic and turned into these.
"""

from __future__ import annotations

import enum
import logging
import time
from typing import Any, Protocol, TypeVar

import msgspec

from deskroll.actions import Action
from deskroll.errors import DeskrollError, FailureClass, InputError

_log = logging.getLogger(__name__)


class Record(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Base of every record: immutable, keyword-only, defaults left out when written."""


R = TypeVar("R", bound=Record)


def checked(record: R, kind: type[R]) -> R:
    """The record, when every field is of its type: where people write them in Python, nothing has looked yet."""
    if not isinstance(record, kind):
        raise InputError(f"{record!r} is no {kind.__name__}")
    try:
        return msgspec.convert(msgspec.to_builtins(record), kind)
    except (msgspec.ValidationError, TypeError) as error:
        raise InputError(f"{kind.__name__}: {error}") from None


class StopReason(enum.StrEnum):
    """Why an episode ended. Every sealed episode has exactly one."""

    DONE = "done"
    """The agent said that it was done."""
    FAIL = "fail"
    """The agent said that the task cannot be done."""
    ANSWER = "answer"
    """The agent gave a final answer."""
    MAX_TURNS = "max_turns"
    """The limit on turns was reached."""
    MAX_TIME = "max_time"
    """The limit on the episode's own time was reached."""
    MAX_TOKENS = "max_tokens"
    """The limit on tokens was reached."""
    MAX_COST = "max_cost"
    """The limit on cost was reached."""
    FAILURE = "failure"
    """Something failed; `Episode.failure` says what and whose fault it was."""
    CANCELLED = "cancelled"
    """Somebody stopped it."""


class Task(Record, frozen=True):
    """What to attempt: immutable, the same for every sample of it."""

    id: str
    instruction: str
    domain: str = ""
    env: str = ""
    """Name of the environment that runs it; empty: the run's own."""
    answer: str | None = None
    """The reference answer, where the task has one."""
    setup: tuple[dict[str, Any], ...] = ()
    evaluator: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    """Every other key of the task's file, kept as it was."""


class Observation(Record, frozen=True):
    """What the agent is shown."""

    instruction: str = ""
    screenshot: bytes | None = None
    """An encoded image (PNG or JPEG), exactly the bytes that the model gets and that are stored."""
    accessibility_tree: str | None = None
    terminal: str | None = None
    text: str | None = None
    """Results of tools, as text."""


class Completion(Record, frozen=True):
    """One answer of a model, with what it cost and which weights gave it."""

    text: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_token_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    model: str = ""
    version: str = ""
    cost_usd: float | None = None


class Score(Record, frozen=True):
    """A number with its reason; `value is None` means not scored, and the reason says why. Never a silent 0."""

    value: float | None
    reason: str

    @property
    def scored(self) -> bool:
        """Whether there is a number at all."""
        return self.value is not None


class Failure(Record, frozen=True):
    """What went wrong, whose fault it was and what happened to whom."""

    failure_class: FailureClass
    kind: str
    """The name of the error class, e.g. `DesktopLost`."""
    message: str

    @classmethod
    def of(cls, error: DeskrollError) -> Failure:
        """The record of an error that carries its class."""
        if error.failure is None:
            raise ValueError(f"{type(error).__name__} has no failure class: put a boundary() around its origin")
        return cls(failure_class=error.failure, kind=type(error).__name__, message=str(error))


class Step(Record, frozen=True):
    """One turn: what was done, what came back, and how long each part took."""

    index: int
    actions: tuple[Action, ...] = ()
    thought: str = ""
    completion: Completion | None = None
    results: tuple[str, ...] = ()
    """One result for each action, as text; empty where there is nothing to say."""
    screen: str = ""
    """File name of the screen that was seen after the actions."""
    seconds: dict[str, float] = {}
    """Duration by phase: model, act, settle, observe."""
    settled: str = ""
    """`settled`, `capped` or `no_reaction`; empty where nothing had to settle."""


class EpisodeKey(Record, frozen=True, order=True):
    """Names one planned episode. `attempt` is not part of it: an episode may need several."""

    phase: str
    round: int
    task: str
    sample: int


class Episode(Record, frozen=True):
    """The record of one attempt."""

    key: EpisodeKey
    attempt: int
    stop: StopReason
    score: Score
    failure: Failure | None = None
    steps: int = 0
    answer: str | None = None
    started_at: float = 0.0
    seconds: dict[str, float] = {}


class Event(Record, frozen=True):
    """Something happened, to whom, when: what status, metrics and the watchdog read."""

    kind: str
    """Dotted name, e.g. `desktop.booted`."""
    subject: str
    """Id of what it happened to."""
    at: float = msgspec.field(default_factory=time.time)
    """Seconds since the epoch."""
    data: dict[str, Any] = {}


class EventSink(Protocol):
    """Where lower layers report what happens. Must not block and must not raise."""

    def emit(self, event: Event) -> None:
        """Take note of one event."""


class NullSink:
    """Drops events: for code that runs without an engine."""

    def emit(self, event: Event) -> None:
        """Do nothing."""


class _Guarded:
    """Whoever listens must not raise; where somebody does, nothing that reports shall fail by it."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink

    def emit(self, event: Event) -> None:
        try:
            self._sink.emit(event)
        except Exception:  # noqa: BLE001  (whatever it is, it must end here)
            _log.exception("the event %s of %s could not be reported", event.kind, event.subject)


def guarded(sink: EventSink | None) -> EventSink:
    """A sink that can be relied upon: it never raises, and drops events where there is none."""
    return NullSink() if sink is None else _Guarded(sink)
