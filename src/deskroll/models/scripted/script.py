"""Script: what a scripted server answers, how long it takes, and how often what goes wrong.

    latency: 0.05                 # seconds, or [low, high]
    seed: 1                       # latencies and faults follow from it
    faults: {rate: 0.3, kinds: [429, 500, half_body], when: "compute", stall: 30, retry_after: 0.05}
    replies:                      # the first whose `when` is found in the system and the first user message
      - when: "compute"           # or {regex: "comput(e|ation)"}
        turns:                    # one for each answer so far; the last one repeats
          - {text: "let me see", tools: [{name: calculator, arguments: {expressions: ["6*7"]}}]}
          - {text: "42"}
      - turns: [{text: "done"}]   # no `when`: everything else

What is wrong in a script is one `ConfigError` that names the file, the line (YAML and TOML) and the field.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from pydantic import BeforeValidator, Field, model_validator

from deskroll.config import Settings, check, load
from deskroll.errors import ConfigError


class FaultKind(enum.StrEnum):
    """What can go wrong with an answer."""

    TOO_MANY = "429"
    """Refused with status 429 and a Retry-After."""
    BROKEN = "500"
    """Refused with status 500."""
    UNAVAILABLE = "503"
    """Refused with status 503."""
    HALF_BODY = "half_body"
    """Half of the answer, then the connection is closed."""
    INVALID_JSON = "invalid_json"
    """An answer of the right length that is no JSON."""
    WRONG_TOOL = "wrong_tool"
    """A call of a tool `no_such_tool_<n>`; only where the request offers tools."""
    BAD_ARGUMENTS = "bad_arguments"
    """A call whose arguments are no JSON; only where the request offers tools."""
    STALL = "stall"
    """The answer comes only after `stall` seconds."""
    RESET = "reset"
    """The connection is reset before any answer."""


def _kinds(value: object) -> object:
    return [str(each) if isinstance(each, int) else each for each in value] if isinstance(value, list) else value


def _seconds(value: object) -> object:
    """A number as a range of its own."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return (value, value)
    if isinstance(value, list | tuple) and len(value) == 2:
        return tuple(value)
    raise ValueError("it is a number of seconds, or two of them: [low, high]")


def _arguments(value: object) -> object:
    if isinstance(value, Mapping):
        return msgspec.json.encode(value).decode()
    if isinstance(value, str):
        return value
    raise ValueError("arguments are fields with their values, or a text that is sent as it is")


def _when(value: object) -> object:
    return {"text": value} if isinstance(value, str) else value


def _regex(value: object) -> object:
    try:
        return re.compile(value).pattern if isinstance(value, str) else value
    except re.error as error:
        raise ValueError(f"it is not a regular expression: {error}") from None


Seconds = Annotated[float, Field(ge=0, le=1e6)]


class When(Settings):
    """Which conversations are meant."""

    text: str = ""
    """A part of the system message or the first user message."""
    regex: Annotated[str, BeforeValidator(_regex)] = ""
    """A regular expression that is searched there."""

    def fits(self, text: str) -> bool:
        """Whether a conversation that begins with this text is meant."""
        return self.text in text and (not self.regex or re.search(self.regex, text) is not None)


class Faults(Settings):
    """How often an answer goes wrong, and how."""

    rate: float = Field(default=0.0, ge=0, le=1)
    """The share of requests with a fault, of whatever kind."""
    kinds: Annotated[tuple[FaultKind, ...], BeforeValidator(_kinds), Field(min_length=1)] = tuple(FaultKind)
    """What may go wrong, each equally often."""
    when: Annotated[When | None, BeforeValidator(_when)] = None
    """In which conversations; None: in all of them."""
    stall: Seconds = 30.0
    """How long an answer that stalls takes, in seconds."""
    retry_after: Seconds = 0.05
    """How long a 429 asks to wait, in seconds."""


class ToolUse(Settings):
    """One call of a tool."""

    name: str = Field(min_length=1)
    arguments: Annotated[str, BeforeValidator(_arguments)] = "{}"
    """As JSON; in a script either fields with their values, or a text that is sent as it is."""


class Turn(Settings):
    """One answer: a text, calls of tools, or both."""

    text: str = ""
    tools: tuple[ToolUse, ...] = ()
    reasoning: str = ""
    """Sent as `reasoning_content`."""
    by_seed: tuple[str, ...] = ()
    """Texts of which the request's seed chooses one; without a seed, or without these, it is `text`."""
    latency: Annotated[tuple[Seconds, Seconds], BeforeValidator(_seconds)] | None = None
    """How long this answer takes, in seconds: at least, at most; None: as long as the script says."""

    @model_validator(mode="after")
    def _says_something(self) -> Turn:
        if not self.model_fields_set - {"latency"}:
            raise ValueError('a turn needs a text, tools, or both; for an empty answer write {text: ""}')
        return self

    def sampled(self, seed: int | None) -> Turn:
        """The turn as a request with that seed gets it."""
        if seed is None or not self.by_seed:
            return self
        return self.model_copy(update={"text": self.by_seed[seed % len(self.by_seed)]})


class Reply(Settings):
    """What is said in some conversations, turn by turn."""

    when: Annotated[When | None, BeforeValidator(_when)] = None
    """None: in all of them."""
    turns: tuple[Turn, ...] = Field(min_length=1)


class Script(Settings):
    """All that a scripted server knows."""

    latency: Annotated[tuple[Seconds, Seconds], BeforeValidator(_seconds)] = (0.0, 0.0)
    """How long an answer takes, in seconds: at least, at most."""
    seed: int = 0
    """Latencies and faults follow from it and from the order of the requests."""
    faults: Faults = Faults()
    replies: tuple[Reply, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Script:
        if self.latency[0] > self.latency[1]:
            raise ValueError(f"latency is [{self.latency[0]:g}, {self.latency[1]:g}]: the lower one comes first")
        for place, reply in enumerate(self.replies[:-1]):
            if reply.when is None:
                raise ValueError(f"replies.{place} has no `when` and so fits everything: put it last")
        return self

    @classmethod
    def load(cls, path: Path) -> Script:
        """Read a YAML, TOML or JSON file."""
        if path.suffix.lower() != ".json":
            return load(cls, path)
        try:
            return cls.parse(json.loads(path.read_bytes()), str(path))
        except json.JSONDecodeError as error:
            raise ConfigError(f"{path}:{error.lineno}: it is not valid JSON: {error.msg}") from None
        except (UnicodeDecodeError, RecursionError):
            raise ConfigError(f"{path}: it is not valid JSON, or not UTF-8") from None
        except FileNotFoundError:
            raise ConfigError(f"{path}: there is no such file") from None
        except OSError as error:
            raise ConfigError(f"{path}: it cannot be read: {error.strerror}") from None

    @classmethod
    def parse(cls, data: object, name: str = "script") -> Script:
        """Read a script that was decoded already; `name` stands for it in messages."""
        return check(cls, data, name)

    @classmethod
    def replying(cls, *turns: Turn | str) -> Script:
        """A script that says this in every conversation; a text stands for a turn without tools."""
        said = [Turn(text=turn) if isinstance(turn, str) else turn for turn in turns]
        return cls(replies=(Reply(turns=tuple(said)),))

    def turn(self, opening: str, number: int) -> Turn | None:
        """The turn of that number in a conversation that begins so; None where no reply fits."""
        for reply in self.replies:
            if reply.when is None or reply.when.fits(opening):
                return reply.turns[min(number, len(reply.turns) - 1)]
        return None
