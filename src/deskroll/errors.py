"""The error tree, and `boundary`, which names whose fault it was.

    DeskrollError                    everything that deskroll raises on purpose; its text is for people
    ├── InputError                   what a person wrote is wrong: file, line, field, what to do (exit code 2)
    │   └── ConfigError              a config file, an override, a flag
    ├── ActionError                  what a model wrote is no valid action: field and allowed values (`agent`)
    ├── ToolError                    what a tool tells the model that called it: why it cannot be done
    ├── MissingDependency            a pip extra or a system program is not installed (exit code 2)
    ├── LimitedError                 a function that ran within limits gave no result: it exceeded, failed or crashed
    ├── BackendLost                  nothing can run episodes any more: the run stops, and can be resumed
    ├── BackgroundLost               background work died: what it serves, say a run, ends with it
    ├── JobStopped                   somebody else stopped a job before its end: what was done is kept
    ├── TrainerError                 a trainer cannot take a step, or its process died: the step is lost, not the run
    │   └── Untrainable              it will never take this batch: trying again is of no use, and the run stops
    ├── StoreError                   the run's folder cannot be written or read: full, read-only, broken, in use
    └── Failure classes, recorded on the episode as `FailureClass`:
        ├── AgentError               agent      the agent's own code or output
        ├── ModelError               model      the model server
        ├── DesktopError             desktop    the machine with the screen
        │   ├── BootError            it never came up
        │   ├── DesktopTimeout       a call's deadline passed
        │   ├── DesktopStalled       the watchdog ended what it did: nobody knows why that took so long
        │   ├── DesktopLost          it is gone, or a part of it died: use another one (`cause` says where that lies)
        │   ├── ResetError           it could not be reset: it is replaced, never handed out
        │   ├── LeaseLost            the lease is over: the desktop belongs to somebody else by now
        │   ├── NoDesktop            the pool cannot serve a request, and says why
        │   │   └── PoolGone         it serves nobody: it does not answer, is being stopped, or is drained
        │   └── GuestError           the guest refused or failed one request (`status` is its HTTP status)
        │       └── CommandTimeout   a command in it did not end in time, and was killed
        ├── SetupError               setup      preparing the task
        │   └── LimitedLost          what runs functions within limits is gone, twice
        ├── EnvError                 env        a bug in an environment or one of its tools
        ├── EvaluatorError           evaluator  judging the task
        └── WorkerLost               worker     the process that ran the episode died or hung

Code that users write raises plain exceptions; a `boundary(FailureClass.X, "what")` around the call turns
them into the class above with the cause kept. Cancellation always passes through untouched. `trace_of` says where in
that code an error came from, for the attempt's folder; what deskroll raised on purpose needs no such thing.
"""

from __future__ import annotations

import enum
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

LONGEST_WORD = 500
"""Characters that are kept of what somebody who is not trusted says."""


class FailureClass(enum.StrEnum):
    """Whose fault a failure was; decides whether it is retried and whether it is scored."""

    AGENT = "agent"
    """The agent's own doing: scored, never retried."""
    MODEL = "model"
    """The model server failed: retried, never scored 0."""
    DESKTOP = "desktop"
    """The desktop failed: retried on another one, never scored 0."""
    SETUP = "setup"
    """The task could not be prepared: retried on another desktop."""
    ENV = "env"
    """A bug in the environment or one of its tools: tried once more, never scored."""
    EVALUATOR = "evaluator"
    """The attempt could not be judged: not scored."""
    WORKER = "worker"
    """The process that ran it died or hung: run again by itself, never scored 0."""
    CANCELLED = "cancelled"
    """Somebody stopped it."""


class FailureKind(enum.StrEnum):
    """What a failure is, as it is stored: by the name of the error, with three that no error stands for.

    A word of another version that stands in an old journal is kept as it is, in a member of its own.
    """

    ACTION_ERROR = "ActionError"
    AGENT_ERROR = "AgentError"
    BOOT_ERROR = "BootError"
    CALL_ERROR = "CallError"
    CANCELLED = "Cancelled"
    """Somebody stopped the attempt."""
    COMMAND_FAILED = "CommandFailed"
    COMMAND_TIMEOUT = "CommandTimeout"
    CONTEXT_TOO_LONG = "ContextTooLong"
    DESKTOP_ERROR = "DesktopError"
    DESKTOP_LOST = "DesktopLost"
    DESKTOP_LOST_BY_AGENT = "desktop_lost"
    """Several desktops died of what the agent did in them."""
    DESKTOP_STALLED = "DesktopStalled"
    DESKTOP_TIMEOUT = "DesktopTimeout"
    ENV_ERROR = "EnvError"
    EVALUATOR_ERROR = "EvaluatorError"
    GIVEN_UP = "given_up"
    """The policy of its group did not want the episode any more."""
    GUEST_ERROR = "GuestError"
    INEXACT_ANSWER = "InexactAnswer"
    LEASE_LOST = "LeaseLost"
    LIMITED_LOST = "LimitedLost"
    MODEL_ERROR = "ModelError"
    MODEL_FORBIDDEN = "ModelForbidden"
    MODEL_REFUSED = "ModelRefused"
    NOT_PLAIN = "NotPlain"
    NO_DESKTOP = "NoDesktop"
    POOL_GONE = "PoolGone"
    RECORDING_ERROR = "RecordingError"
    REFRESH_FAILED = "RefreshFailed"
    RESET_ERROR = "ResetError"
    SERVER_DIED = "ServerDied"
    SETUP_ERROR = "SetupError"
    UPSTREAM_ERROR = "UpstreamError"
    WORKER_LOST = "WorkerLost"

    @classmethod
    def _missing_(cls, value: object) -> FailureKind | None:
        if not isinstance(value, str):
            return None
        unknown = str.__new__(cls, value)
        unknown._name_, unknown._value_ = "UNKNOWN", value
        return unknown


_KINDS = {kind.value: kind for kind in FailureKind}


class DeathCause(enum.StrEnum):
    """Where the cause of a desktop's death lies, as far as those who watch over it can tell."""

    INSIDE = "inside"
    """In the desktop: a part of it ended or crashed by itself, or the desktop used up what it was allowed."""
    OUTSIDE = "outside"
    """On its host: somebody ended what nothing inside a desktop can reach."""
    UNKNOWN = "unknown"
    """It cannot be told."""


class DeskrollError(Exception):
    """Everything that deskroll raises on purpose. `str(error)` is complete for a person: no traceback needed."""

    failure: FailureClass | None = None
    kind: FailureKind | None = None
    """What it is stored as, of those that carry a failure class: by its name; a plug-in's own class as its base."""
    unforeseen: BaseException | None = None
    """What a boundary caught and turned into this: an exception that nobody raised for people to read."""
    trace: str = ""
    """The traceback behind it, where that is of another process."""

    def __init_subclass__(cls) -> None:
        if cls.failure is not None and cls.__module__.startswith("deskroll."):
            cls.kind = _KINDS.get(cls.__name__, cls.kind)


class InputError(DeskrollError):
    """What a person wrote is wrong."""


class ConfigError(InputError):
    """A config file, an override or a flag is wrong."""


class MissingDependency(DeskrollError):
    """Something has to be installed first; the message holds the line to run."""


class StoreError(DeskrollError):
    """A run's folder cannot be written or read; the run stops, and what was done is kept."""


class TrainerError(DeskrollError):
    """A trainer cannot load, take a step or save, or its process died; nobody's episode has failed."""


class Untrainable(TrainerError):
    """A trainer does not take a batch for what is in it: it would not the next time, either, so the run stops."""


class BackendLost(DeskrollError):
    """Nothing can run episodes any more; the run stops, and what was done is kept."""


class BackgroundLost(DeskrollError):
    """Background work died, and what it serves ended with it; of a run, what was done is kept."""


class JobStopped(DeskrollError):
    """Somebody else stopped a job before its end (`deskroll status --stop`); what was done is kept."""


class ActionError(DeskrollError):
    """An action is malformed; the message names the field and the allowed values, so a model can mend it."""

    failure = FailureClass.AGENT


class ToolError(DeskrollError):
    """What a tool was called for cannot be done; the message is for the model that called it."""


class AgentError(DeskrollError):
    """The agent's own code or output failed."""

    failure = FailureClass.AGENT


class ModelError(DeskrollError):
    """The model server failed."""

    failure = FailureClass.MODEL


class DesktopError(DeskrollError):
    """The desktop failed."""

    failure = FailureClass.DESKTOP


class BootError(DesktopError):
    """A desktop did not come up."""


class DesktopTimeout(DesktopError):
    """A call to a desktop did not finish before its deadline."""


class DesktopStalled(DesktopError):
    """What a desktop was asked for did not end, and the watchdog stopped it; that is evidence against nobody."""


class DesktopLost(DesktopError):
    """A desktop is gone or a part of it died; it must be replaced."""

    def __init__(self, message: str, cause: DeathCause = DeathCause.UNKNOWN) -> None:
        super().__init__(message)
        self.cause = cause


class ResetError(DesktopError):
    """A desktop could not be reset; it must be replaced."""


class LeaseLost(DesktopError):
    """The lease on a desktop is over: expired, taken back, or its pool is gone. Nothing more may be done with it."""


class NoDesktop(DesktopError):
    """A pool cannot serve a request for a desktop; the message says why and what to do."""


class PoolGone(NoDesktop):
    """A pool serves nobody at the moment: it does not answer, is being stopped, or hands out nothing any more."""


class GuestError(DesktopError):
    """The guest answered a request with an error; the desktop itself is alive."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class CommandTimeout(GuestError):
    """A command did not end in time, and the guest has killed it; the desktop itself is alive."""


class SetupError(DeskrollError):
    """A task could not be prepared."""

    failure = FailureClass.SETUP


class EvaluatorError(DeskrollError):
    """An attempt could not be judged."""

    failure = FailureClass.EVALUATOR


class EnvError(DeskrollError):
    """An environment or one of its tools has a bug."""

    failure = FailureClass.ENV


class WorkerLost(DeskrollError):
    """The process that ran an episode died or hung."""

    failure = FailureClass.WORKER


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A part of a message: the name that is nearest to one that does not exist; empty where none is near."""
    import difflib  # noqa: PLC0415  (only where something is wrong)

    close = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {plain(close[0])}?" if close else ""


def plain(text: str, longest: int = LONGEST_WORD, *, keep: str = "") -> str:
    """What a guest or a client said, fit for a log or a terminal: printable (or in `keep`), of bounded length."""
    if len(text) <= longest and text.isprintable():  # as most are
        return text.strip()
    shown = "".join(each if each.isprintable() or each in keep else " " for each in text[:longest]).strip()
    return f"{shown} ..." if len(text) > longest else shown


_BY_CLASS = {
    error.failure: error for error in (AgentError, ModelError, DesktopError, SetupError, EvaluatorError, EnvError)
}


def comes_from_outside(error: BaseException) -> bool:
    """Whether an exception is no failure of the code that raised it: a cancellation, or a Ctrl-C of somebody."""
    if isinstance(error, KeyboardInterrupt):  # where the signal is ignored, nobody can have sent it
        return signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    return not isinstance(error, Exception | SystemExit)


class boundary:  # noqa: N801  (it is used like a function, many times a turn: a generator would cost thrice as much)
    """Turn any plain exception that leaves the block into the error class of `culprit`.

    `bug`: whose fault it is where nobody raised it for people to read, if that is another's.
    Errors that already carry a failure class, a `StoreError`, and cancellation pass through unchanged. Code that wants
    to end the whole program (`sys.exit`) has failed like any other: the program is not its own.
    """

    __slots__ = ("_bug", "_culprit", "_what")

    def __init__(self, culprit: FailureClass, what: str, *, bug: FailureClass | None = None) -> None:
        if culprit not in _BY_CLASS:
            raise ValueError(f"no error class belongs to {culprit!r}: cancellation passes through by itself")
        self._culprit, self._what, self._bug = culprit, what, bug

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.blame(error)

    def blame(self, error: BaseException) -> None:
        """Raise it as the culprit's, unless it has a culprit or is no failure."""
        if isinstance(error, DeskrollError):
            if error.failure is not None or isinstance(error, StoreError):
                return
            blamed = self._culprit if error.unforeseen is None else self._bug or self._culprit
            made = _BY_CLASS[blamed](f"{self._what}: {error}")
            made.unforeseen, made.trace = error.unforeseen, error.trace
            raise made from error
        if not comes_from_outside(error):
            made = _BY_CLASS[self._bug or self._culprit](f"{self._what}: {type(error).__name__}: {error}")
            made.unforeseen = error
            raise made from error


@contextmanager
def foreign_code(what: str) -> Iterator[None]:
    """Code of a plug-in, before anything is started: what it raises is an `InputError` that shows where in it."""
    try:
        yield
    except DeskrollError:
        raise
    except BaseException as error:
        if comes_from_outside(error):
            raise
        raise InputError(f"{what}: {type(error).__name__}: {error}\n{trace_of(error).rstrip()}") from error


def trace_of(error: BaseException) -> str:
    """Where in code that is not deskroll's an error came from, as Python shows it; empty where no such code had part.

    What a boundary caught is shown whatever raised it: a bug of ours is to be seen, too.
    """
    if isinstance(error, DeskrollError):
        if error.trace:
            return error.trace
        if error.unforeseen is None and not _passes_foreign_code(error.__traceback__):
            return ""
        error = error.unforeseen or error
    import traceback  # noqa: PLC0415  (takes time to import, and nothing fails most of the time)

    first = error.__traceback__
    while first is not None and first.tb_next is not None and _is_ours(first):
        first = first.tb_next  # how deskroll came to call it is of no interest
    return "".join(traceback.format_exception(type(error), error, first)).rstrip() + "\n"


def _passes_foreign_code(trace: TracebackType | None) -> bool:
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith((_OURS, _PYTHON, "<")) or "/site-packages/" in file.removeprefix(_OURS):
            return True
        trace = trace.tb_next
    return False


def _is_ours(trace: TracebackType) -> bool:
    """Whether a frame is deskroll's, or of its importing somebody's module."""
    return trace.tb_frame.f_code.co_filename.startswith((_OURS, *_IMPORTING))


_OURS = f"{Path(__file__).parent}/"
_PYTHON = f"{Path(os.__file__).parent}/"
_IMPORTING = ("<frozen importlib", f"{_PYTHON}importlib/")


def first_error(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error of several that says most: what stopped the work, not what followed from it; a bug as it is."""
    flat: list[BaseException] = []
    stack: list[BaseException] = [errors]
    while stack:
        error = stack.pop()
        if isinstance(error, BaseExceptionGroup):
            stack.extend(error.exceptions)
        else:
            flat.append(error)
    if len(flat) > 1 and not all(isinstance(each, DeskrollError) for each in flat):
        return errors
    telling = StoreError | BackendLost | BackgroundLost | ConfigError
    return next((each for each in flat if isinstance(each, telling)), flat[0])
