"""The vocabulary: frozen records that cross boundaries, and the enums that say why something ended.

Everything here is plain data (msgspec structs): it goes to the journal and over the wire as it is. What a person
writes (config, task files) is read elsewhere by pydantic and turned into these.
"""

from __future__ import annotations

import enum
import math
from typing import Any, Protocol, TypeVar

import msgspec

from deskroll.actions import ACTIONS, Action
from deskroll.errors import DeathCause, DeskrollError, DesktopLost, FailureClass, FailureKind, InputError


class Record(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Base of every record: immutable, keyword-only, defaults left out when written."""


R = TypeVar("R", bound=Record)


def checked(record: R, kind: type[R]) -> R:
    """The record, when every field is of its type: where people write them in Python, nothing has looked yet."""
    if not isinstance(record, kind):
        raise InputError(f"{record!r} is not a {kind.__name__}")
    try:
        return msgspec.convert(msgspec.to_builtins(record), kind)
    except (msgspec.ValidationError, TypeError) as error:
        raise InputError(f"{kind.__name__}: {error}") from None


class Stage(enum.StrEnum):
    """What an episode does at a moment. Every second of it belongs to exactly one of these."""

    PERMIT = "permit"
    """It waits for a permit of the engine."""
    DESKTOP = "desktop"
    """It waits for a desktop."""
    SETUP = "setup"
    """Its task is being prepared."""
    MODEL = "model"
    """It waits for the model."""
    ACT = "act"
    """Its actions or tools run."""
    SETTLE = "settle"
    """It waits for the screen to come to rest, and looks at it."""
    SCORE = "score"
    """It is being judged."""
    STORE = "store"
    """What is left of it is being written."""


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


class GroupEnd(enum.StrEnum):
    """Why a group of episodes was closed."""

    COMPLETE = "complete"
    """Every member has the outcome that it came to by itself."""
    ENOUGH = "enough"
    """The others are there, and the last one took too long: it was given up."""
    NO_SIGNAL = "no_signal"
    """Those that are scored have one and the same score: the rest was given up."""
    FAILED = "failed"
    """Fewer members are scored than were wanted."""
    WITHHELD = "withheld"
    """Whoever was to use it did not take it any more: it was too old."""
    STOPPED = "stopped"
    """The job was stopped before every member had its outcome; a resume does the rest."""


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
    """The elements on the screen, as a table: what models are shown of the tree."""
    raw_tree: str | None = None
    """The whole tree, as XML, for kinds of agents that say `reads_tree`; no model is shown it, and it is not stored."""
    terminal: str | None = None
    results: tuple[str, ...] = ()
    """What came of each action of the step before, in order: output, or why it was refused; may be empty."""


class ToolRequest(Record, frozen=True):
    """One call that a model asks for, as it wrote it: the arguments may be no JSON at all."""

    id: str
    name: str
    arguments: str


class LogprobsMode(enum.StrEnum):
    """What a server's log-probabilities are of, in vLLM's words."""

    RAW = "raw_logprobs"
    """Of the model's own distribution, before temperature, top_p and top_k."""
    PROCESSED = "processed_logprobs"
    """Of the distribution that was sampled from, after them."""


class Sampling(Record, frozen=True):
    """How an answer is sampled, and what is to be told of its tokens; None: not sent, the server's own default."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    """The most tokens of the answer."""
    stop: tuple[str, ...] = ()
    """Texts before which the answer ends."""
    seed: int | None = None
    logprobs: bool = False
    """Whether the log-probability of each token is asked for."""
    token_ids: bool = False
    """Whether token ids are asked for (vLLM's field)."""
    logprobs_mode: LogprobsMode | None = None
    """What the server's log-probabilities are of, as its settings say; not sent. None: not known."""


class Completion(Record, frozen=True):
    """One answer of a model, with what it cost and which weights gave it."""

    text: str = ""
    reasoning: str = ""
    """What the server reports as the model's reasoning, beside its answer."""
    tool_calls: tuple[ToolRequest, ...] = ()
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_token_ids: tuple[int, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    model: str = ""
    version: str = ""
    """Of the weights: what a router or a header of the answer says; empty: nobody said, or can say any more. In
    steps that were stored before there was `fingerprint`, it may be that."""
    version_end: str = ""
    """Of the weights that gave its last token, where they changed while it was generated; empty: they did not."""
    fingerprint: str = ""
    """The server's `system_fingerprint`: of its configuration, and the same after its weights were changed."""
    endpoint: str = ""
    """Who answered: the address, without credentials and query."""
    sampling: Sampling | None = None
    """How it was sampled, as it was sent; None: not known."""
    seed: int | None = None
    """The seed that it was asked with."""
    cost_usd: float | None = None
    """None where no price is known."""
    tries: int = 1
    """How many requests it took."""


class Tool(Record, frozen=True):
    """Something that an agent can call, as a model is told of it."""

    name: str
    description: str
    parameters: dict[str, Any] = {}
    """A JSON Schema of its arguments."""


_SUCCESS = 1 - 1e-9
"""Below 1 by what adding fractions loses."""


def is_success(score: float | None) -> bool:
    """Whether a score is the full one; none is not."""
    return score is not None and math.isfinite(score) and score >= _SUCCESS


def points_of(score: float | None, failure: FailureClass | None) -> float | None:
    """The score that counts, of an outcome: an agent's own failure is 0; None where it is unscored."""
    if score is not None and math.isfinite(score):
        return float(score)
    return 0.0 if failure is FailureClass.AGENT else None


class Score(Record, frozen=True):
    """A number with its reason; `value is None` means not scored, and the reason says why. Never a silent 0."""

    value: float | None
    reason: str
    found: str | None = None
    """What was judged, in brief: an answer, what a command printed, a file's text; None: nothing, or it is not told."""
    expected: str | None = None
    """What it was compared with, in brief."""

    @property
    def scored(self) -> bool:
        """Whether there is a number at all."""
        return self.value is not None


UNJUDGED = Score(value=None, reason="evaluation is switched off")
"""Of attempts that nobody was to judge."""


class Failure(Record, frozen=True):
    """What went wrong, whose fault it was and what happened to whom."""

    failure_class: FailureClass
    kind: FailureKind
    message: str
    cause: DeathCause | None = None
    """Where the cause lies, of a desktop that was lost; None for every other failure."""
    trace: str = ""
    """The file in the attempt's folder that says where in whose code it came from; empty: the message says all."""

    @classmethod
    def of(cls, error: DeskrollError) -> Failure:
        """The record of an error that carries its class."""
        if error.failure is None or error.kind is None:
            raise ValueError(f"{type(error).__name__} has no failure class: put a boundary() around its origin")
        cause = error.cause if isinstance(error, DesktopLost) else None
        return cls(failure_class=error.failure, kind=error.kind, message=str(error), cause=cause)


class Sent(Record, frozen=True):
    """What of an attempt's conversation one request to the model held, so that the request can be built again."""

    messages: int
    """The request held the first so many messages ..."""
    withheld: tuple[int, ...] = ()
    """... with the screens and trees of these ones replaced by a line of text, to stay within the limits."""


class Decision(Record, frozen=True):
    """What an agent makes of one observation."""

    actions: tuple[Action, ...] = ()
    """In order; none where what the model said could not be used: it was told so, and is asked again."""
    thought: str = ""
    completion: Completion | None = None
    sent: Sent | None = None
    notes: tuple[str, ...] = ()
    """Where the actions are not quite what the model wrote: a point brought to the edge, a parameter left out."""
    problem: str = ""
    """Why there are no actions."""
    gave_up: str = ""
    """Why the agent cannot go on: the attempt has failed by it."""

    def __post_init__(self) -> None:
        """TypeError for what is no action: where it is made, and so where it can be mended."""
        for action in self.actions:
            if not isinstance(action, ACTIONS):
                raise TypeError(f"{action!r:.200} is not an action; see deskroll.actions for those that there are")


class Step(Record, frozen=True):
    """One turn: what was done, what came back, and how long each part took."""

    index: int
    actions: tuple[Action, ...] = ()
    thought: str = ""
    completion: Completion | None = None
    sent: Sent | None = None
    """What the model was sent for it."""
    notes: tuple[str, ...] = ()
    """Where the actions are not quite what the model wrote; it was not told."""
    results: tuple[str, ...] = ()
    """One result for each action, as text; empty where there is nothing to say."""
    screen: str = ""
    """File name of the screen that was seen after the actions."""
    seconds: dict[str, float] = {}
    """Duration by stage: model, act, settle, observe."""
    settled: str = ""
    """`settled`, `capped` or `no_reaction`; empty where nothing had to settle."""


class EpisodeKey(Record, frozen=True, order=True, gc=False):
    """Names one planned episode. `attempt` is not part of it: an episode may need several."""

    phase: str
    round: int
    task: str
    sample: int


class Usage(Record, frozen=True):
    """What an attempt used up."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: int = 0
    """Completions that came back."""
    cost_usd: float | None = None
    """None where the price of any call is not known."""


class Episode(Record, frozen=True):
    """The record of one attempt."""

    key: EpisodeKey
    attempt: int
    stop: StopReason
    score: Score
    failure: Failure | None = None
    steps: int = 0
    actions: int = 0
    """Actions that the agent performed; 0 means that it never touched anything."""
    answer: str | None = None
    domain: str = ""
    desktop: str = ""
    """Id of the desktop that it ran on; empty where it needed none."""
    model: str = ""
    versions: tuple[str, ...] = ()
    """Versions of the weights that answered, in order of first use."""
    joinable: int = 0
    """Turns after another one, both with token ids."""
    joined: int = 0
    """Those of them whose prompt began with all of the turn before, to the token."""
    usage: Usage = Usage()
    started_at: float = 0.0
    """Seconds since the epoch."""
    ended_at: float = 0.0
    seconds: dict[str, float] = {}
    """Duration by stage; the names are those of `Stage`."""

    @property
    def points(self) -> float | None:
        """The score that counts; None where it is unscored."""
        return points_of(self.score.value, self.failure.failure_class if self.failure is not None else None)

    @property
    def given_up(self) -> bool:
        """Whether its group's policy did not want it any more: it counts as neither attempted nor scored."""
        return self.failure is not None and self.failure.kind is FailureKind.GIVEN_UP

    @property
    def success(self) -> bool:
        """Whether it has the full score."""
        return is_success(self.score.value)


class ConversationLog(Protocol):
    """Where an agent's conversation is kept while it happens."""

    def message(self, stored: bytes) -> None:
        """Keep one message: a JSON object in which images stand by their names."""

    def screen(self, image: bytes) -> str:
        """Keep an image, once, and return its name."""
