"""ModelSettings: which model is asked, where, how, and with how much patience.

Guarantees: the key is in no repr, no dump and no message. What is left out here comes from the environment, and a
`.env` file in the working directory adds to that without overriding anything.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec
from pydantic import Field, JsonValue, SecretStr, field_validator, model_validator
from yarl import URL

from deskroll.config import Settings
from deskroll.errors import ConfigError, InputError
from deskroll.host.listen import Listen
from deskroll.models.prices import Price
from deskroll.models.router.endpoints import EndpointSettings
from deskroll.models.router.roster import AFFINITY_MARGIN
from deskroll.types import LogprobsMode, Sampling

PUBLIC_URL = "https://api.openai.com/v1"
URL_VARIABLE = "OPENAI_BASE_URL"
KEY_VARIABLE = "OPENAI_API_KEY"
_UNIX = "unix:"
_OURS = ("model", "messages", "tools", "stream", "n")
"""Fields of a request that are not for `extra`: the client itself decides on them."""

SAMPLING = (
    "temperature", "top_p", "top_k", "max_tokens", "seed", "stop", "logprobs", "return_token_ids", "logprobs_mode",
)  # fmt: skip
"""Settings that say how answers are sampled: each call brings its own."""
_SAMPLING_OF_EXTRA = {
    "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens", "seed": "seed", "stop": "stop", "stop_sequences": "stop",
    "logprobs": "logprobs", "return_token_ids": "token_ids",
}  # fmt: skip


@dataclass(frozen=True)
class Vendor:
    """Whose protocol it is: where its public API is, and which variables say otherwise."""

    url: str
    url_variable: str
    key_variable: str


OPENAI = Vendor(PUBLIC_URL, URL_VARIABLE, KEY_VARIABLE)


@dataclass(frozen=True)
class Address:
    """Where a model is served, and the key to it."""

    url: URL
    """The base, to which `chat/completions` is added."""
    key: SecretStr | None
    variable: str = URL_VARIABLE
    """The variable that says where it is, where settings do not."""
    socket: str = ""
    """The unix socket that it is reached over; empty: over TCP."""

    @functools.cached_property
    def shown(self) -> str:
        """The address as it may be shown: without query."""
        return f"{_UNIX}{self.socket}" if self.socket else str(self.url.with_query(None)).rstrip("/")

    @property
    def is_ours(self) -> bool:
        """Whether it is on this machine or in a private network, where no list price holds."""
        host = self.url.host or ""
        if self.socket:
            return True
        try:
            return is_loopback(host) or ipaddress.ip_address(host).is_private
        except ValueError:
            return False

    def path(self, path: str) -> URL:
        """The address of one of its resources, the query kept."""
        return self.url.joinpath(path).with_query(self.url.query)


class ModelSettings(Settings):
    """Which model, where, and how it is asked. Times are in seconds."""

    text_is = "name"
    name: str = Field(default="gpt-4.1-2025-04-14", min_length=1)
    """The model, as its server calls it; scripted[:FILE] answers from a script."""
    kind: str = ""
    """How it is asked: `openai`, `anthropic`, `scripted`, a plug-in's name or path; empty: as the agent does."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Options of that kind, where it has such."""
    base_url: str = ""
    """Where the model is served, e.g. http://127.0.0.1:8000/v1; empty: $OPENAI_BASE_URL, else OpenAI's public API."""
    endpoints: tuple[EndpointSettings, ...] | None = None
    """Several servers that answer for the model, instead of base_url; None: there is one."""
    pool: str = ""
    """A pool of servers that runs elsewhere, instead of base_url: unix:PATH, or HOST:PORT with $DESKROLL_TOKEN."""
    served_as: str = ""
    """In a pool of adapters: the name of the one version that is to answer (NAME@12, or NAME for what adapters are on),
    while that is loaded; empty: the newest does."""
    server_wait: float = Field(default=900, gt=0, allow_inf_nan=False)
    """With several servers, or a pool: how long a request waits while none can be asked, in seconds."""
    affinity_margin: int = Field(default=AFFINITY_MARGIN, ge=0)
    """With several: how many more open requests than the least busy one the server of an attempt's last request may
    have before the next one goes elsewhere."""
    api_key: SecretStr | None = None
    """The key; None: $OPENAI_API_KEY, and where that is not set either, none is sent."""
    temperature: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Sampling temperature; None: not sent, the server's default."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Probability mass that is sampled from; None: not sent."""
    top_k: int | None = None
    """How many of the likeliest tokens are sampled from, where the server takes that; None: not sent."""
    max_tokens: int | None = Field(default=None, ge=1)
    """The most tokens of one completion; None: not sent."""
    seed: int | None = None
    """Seed for sampling, where the server takes one; each sample of each task gets its own, made from this one and its
    key, which is kept with every answer. None: not sent."""
    stop: tuple[str, ...] = ()
    """Texts before which an answer ends; none: not sent."""
    extra: dict[str, JsonValue] = Field(default_factory=dict)
    """Further fields of the request, sent as they are; where a field above sets the same, this one counts."""
    logprobs: bool = False
    """Whether to ask for the log-probability of each token of the completion."""
    return_token_ids: bool = False
    """Whether to ask for token ids (vLLM's field)."""
    exact: bool = False
    """Whether to ask for both, and to refuse an answer whose token ids or log-probabilities are missing or cannot be
    right: it is asked for again, as after any failure. For training; see docs/models.md, Exact tokens."""
    logprobs_mode: LogprobsMode | None = None
    """What the server's log-probabilities are of, as it was started: `raw_logprobs` (before temperature, vLLM's
    default) or `processed_logprobs` (of what was sampled from); kept with every answer, not sent. None: not known."""
    timeout: float = Field(default=300, gt=0, allow_inf_nan=False)
    """The longest that one request may take, in seconds."""
    connect_timeout: float = Field(default=10, gt=0, allow_inf_nan=False)
    """The longest that connecting may take, in seconds."""
    retries: int = Field(default=4, ge=0, le=1000)
    """How often a request that failed is made again."""
    backoff: float = Field(default=0.5, ge=0, allow_inf_nan=False)
    """The longest pause before the first retry, in seconds; doubled with each further one."""
    backoff_max: float = Field(default=30, ge=0, allow_inf_nan=False)
    """The longest pause before any retry, in seconds, also where the server asks for a longer one."""
    max_in_flight: int | None = Field(default=None, ge=1)
    """The most requests that are open at a time; None: no limit."""
    max_answer_mb: float = Field(default=64, gt=0, allow_inf_nan=False)
    """The longest answer that is read, in megabytes (10^6 bytes)."""
    price: Price | None = None
    """What tokens cost, in USD per million; None: see docs/models.md, Prices."""

    @field_validator("base_url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        if value:
            read_address(value, "base_url")
        return value

    @model_validator(mode="after")
    def _check_servers(self) -> Self:
        given = [name for name in ("base_url", "endpoints", "pool") if getattr(self, name) not in ("", None)]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)}: only one of them says where the model is")
        if self.pool:
            _parse_pool(self.pool)
        elif self.served_as:
            raise ValueError(f"served_as is {self.served_as!r}, and only a pool serves several versions: set pool")
        if self.endpoints is not None:
            _check_endpoints(self.endpoints)
        return self

    @field_validator("extra")
    @classmethod
    def _check_extra(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if ours := [name for name in _OURS if name in value]:
            raise ValueError(f"{', '.join(ours)} cannot be set here: deskroll itself decides on it")
        return value

    @property
    def sampling(self) -> Sampling:
        """How answers are sampled where a call does not say."""
        return Sampling(
            temperature=self.temperature, top_p=self.top_p, top_k=self.top_k, max_tokens=self.max_tokens,
            stop=self.stop, seed=self.seed, logprobs=self.logprobs or self.exact,
            token_ids=self.return_token_ids or self.exact, logprobs_mode=self.logprobs_mode,
        )  # fmt: skip

    def sampling_of_extra(self) -> dict[str, object]:
        """What `extra` says of sampling, by the fields of `Sampling`: it counts, so answers are kept with it."""
        found: dict[str, object] = {}
        for name, value in self.extra.items():
            if (field := _SAMPLING_OF_EXTRA.get(name)) is not None:
                given = [value] if field == "stop" and isinstance(value, str) else value
                with contextlib.suppress(msgspec.ValidationError):  # whether such a value is one, the server decides
                    found[field] = getattr(msgspec.convert({field: given}, Sampling), field)
        return found

    def resolved(self, env: Mapping[str, str], vendor: Vendor = OPENAI) -> Address:
        """Where to ask and with which key, given an environment."""
        given = self.base_url or env.get(vendor.url_variable, "").strip()
        origin = "base_url" if self.base_url else f"${vendor.url_variable}"
        key = env.get(vendor.key_variable, "") if self.api_key is None else self.api_key.get_secret_value()
        key = key.strip()
        if not (key.isascii() and key.isprintable()):
            raise ConfigError(f"the API key (api_key, or ${vendor.key_variable}) holds characters that no key has")
        return read_address(given or vendor.url, origin, key, vendor.url_variable)


def _parse_pool(pool: str) -> None:
    try:
        Listen.parse(pool)
    except InputError as error:
        raise ValueError(f"pool: {error}") from None


def _check_endpoints(endpoints: Sequence[EndpointSettings]) -> None:
    if not endpoints:
        raise ValueError("endpoints is empty: name a server, or leave it out")
    shown = [read_address(each.url, f"endpoints.{number}.url").shown for number, each in enumerate(endpoints)]
    if twice := [url for url, count in Counter(shown).items() if count > 1]:
        raise ValueError(f"endpoints: {twice[0]} is there twice")


def read_address(text: str, origin: str, key: str = "", variable: str = URL_VARIABLE) -> Address:
    """The address that is written there: http://HOST:PORT/v1, or unix:PATH; `origin` names it in errors."""
    secret = SecretStr(key) if key else None
    if text.strip().startswith(_UNIX):
        return Address(URL("http://localhost/v1"), secret, variable, Listen.parse(text.strip()).path)
    return Address(_url(text, origin), secret, variable)


def _url(text: str, origin: str) -> URL:
    # A ConfigError, and without the text: a mistaken address may well hold a password.
    try:
        url = URL(text.strip())
        host = url.host
    except ValueError:
        raise ConfigError(f"{origin} is not an address; write it like http://127.0.0.1:8000/v1") from None
    if url.user is not None or url.password is not None:
        raise ConfigError(f"{origin} holds a user name or a password; give the key as ${KEY_VARIABLE} instead")
    if url.scheme not in ("http", "https") or not host:
        raise ConfigError(f"{origin} is not an HTTP address; write it like http://127.0.0.1:8000/v1")
    return url.with_fragment(None)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def load_env(folder: Path) -> bool:
    """Add what a file `.env` in that folder sets to the environment, where it is not set yet; say if there was one."""
    from dotenv import load_dotenv  # noqa: PLC0415  (the command line alone needs it)

    path = folder / ".env"
    try:
        return path.is_file() and load_dotenv(path, override=False)
    except UnicodeDecodeError:
        raise InputError(f"{path}: it is not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise InputError(f"{path}: it cannot be read: {error.strerror}") from None
