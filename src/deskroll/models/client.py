"""ModelClient: a `Model` behind HTTP: an `Endpoint`, a `Dialect`, and patience.

Guarantees: a request that fails for the server's or the network's sake is made again, with pauses; what is refused for
good is not. Every call ends with a completion, with `ModelError` (the server's fault), `ModelRefused` (asking again is
useless) or `ContextTooLong` (the agent's fault), or is cancelled. A pause before a retry, or the wait for a permit,
costs nothing of a request's time.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

import msgspec

from deskroll.clocks import running_time
from deskroll.errors import ModelError, plain
from deskroll.events import EventSink, ModelAnswered, ModelFailed, ModelRetried
from deskroll.models.base import (
    ANY_CALL,
    ContextTooLong,
    EndpointLoad,
    ModelCall,
    ModelForbidden,
    ModelRefused,
    NoClock,
    episode_clock,
)
from deskroll.models.body import Body
from deskroll.models.dialect import Answered, Dialect, Request
from deskroll.models.endpoint import Endpoint, Reply, Unreachable
from deskroll.models.exact import InexactAnswer, inexact
from deskroll.models.plugin import SILENT_AFTER_S, ModelPlugin
from deskroll.models.prices import NO_PRICES, Prices, price_of
from deskroll.models.retry import pause, retry_after
from deskroll.models.settings import Address, ModelSettings, Vendor
from deskroll.models.wire import Unusable, refusal
from deskroll.types import Completion, Record, Sampling

_RETRIED = frozenset((408, 409, 425, 429))
_UNPAID = 402
_FORBIDDEN = (401, 404)
"""Nobody who asks is answered; a 403 may be about this one request, whose text a gateway has flagged."""
_CHECK_S = 30.0
_NO_CLOCK = NoClock()


class _Failed(Exception):
    """One request brought no usable answer; another one may."""

    def __init__(self, cause: str, after: float | None = None, error: type[ModelError] = ModelError) -> None:
        super().__init__(cause)
        self.after = after
        self.error = error
        """What it is where no other request is made."""


class ModelClient(ModelPlugin):
    """Use with `async with`; any number of calls may run at a time."""

    checks_exact: ClassVar[bool] = True
    dialect: ClassVar[type[Dialect]]

    def __init__(
        self,
        settings: ModelSettings,
        *,
        sink: EventSink | None = None,
        silent_after: float = SILENT_AFTER_S,
        prices: Prices = NO_PRICES,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        super().__init__(settings, sink=sink, silent_after=silent_after)
        dialect = self.dialect
        self.address = address = settings.resolved(env, dialect.vendor)
        self._dialect = dialect(settings.name, address, settings.extra)
        key = None if address.key is None else address.key.get_secret_value()
        self._endpoint = Endpoint(address, dialect.headers(key), settings, self._sink, silent_after)
        self._sampling = settings.sampling
        self._of_extra = settings.sampling_of_extra()
        self._price = settings.price or price_of(settings.name, prices, None if address.is_ours else address.url)
        self._url = address.path(dialect.path)

    async def __aenter__(self) -> Self:
        await self._endpoint.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._endpoint.__aexit__()

    async def complete(
        self, messages: Sequence[bytes], tools: bytes | None = None, *, call: ModelCall = ANY_CALL
    ) -> Completion:
        """Answer a conversation; see `Model`."""
        sampling = call.sampling or self._sampling
        if self.settings.exact and not (sampling.logprobs and sampling.token_ids):
            sampling = msgspec.structs.replace(sampling, logprobs=True, token_ids=True)
        request = self._dialect.request(messages, tools, sampling)
        clock = episode_clock.get() or _NO_CLOCK
        tries, asked = 0, time.perf_counter()
        while True:
            tries += 1
            async with self._endpoint.slot(clock):
                begun = running_time()
                try:
                    with clock.asking():
                        completion = await self._ask(request, sampling, tries, call)
                    self._tell_answer(completion, call, time.perf_counter() - asked)
                    return completion  # noqa: TRY300  (inside its slot, as everything of a call)
                except _Failed as failure:
                    error, failed = self._endpoint.hide_key(str(failure)), failure
                except ModelError as refused:
                    self._endpoint.note_failure(str(refused))
                    self._tell_failure(call, tries, str(refused))
                    raise
                clock.credit(running_time() - begun)
            self._endpoint.note_failure(error)
            wait = pause(tries, failed.after, base=self.settings.backoff, longest=self.settings.backoff_max)
            left = _left(call)
            if tries > self.settings.retries or (left is not None and wait >= left):
                self._tell_failure(call, tries, error)
                times = "once" if tries == 1 else f"{tries} times"
                raise failed.error(f"{self._who}: asked {times}, without a usable answer; the last time: {error}")
            self._tell_failure(call, tries, error, wait)
            with clock.paused():
                await asyncio.sleep(wait)

    async def _ask(self, request: Request, sampling: Sampling, tries: int, call: ModelCall) -> Completion:
        status, headers, body = await self._exchange(request, call)
        if status != 200:
            raise self._refused(status, headers, body)
        known = Answered(
            asked=self.settings.name,
            price=self._price,
            endpoint=call.endpoint or self.address.shown,
            version=call.version or headers.get("x-model-version") or headers.get("version") or "",
            sampling=msgspec.structs.replace(sampling, **self._of_extra) if self._of_extra else sampling,
            tries=tries,
        )
        try:
            completion = self._dialect.read(body, known)
        except Unusable as error:
            said = refusal(self._endpoint.without_key(body)).message
            raise _Failed(f"{error}{f'; it says: {said}' if said else ''}") from None
        if self.settings.exact and (why := inexact(completion)):
            raise _Failed(f"the answer is not exact: {why}", error=InexactAnswer)
        self._endpoint.note_answer()
        return completion

    async def _exchange(self, request: Request, call: ModelCall) -> Reply:
        seconds, left = self.settings.timeout, _left(call)
        if left is not None:
            seconds = min(seconds, max(0.0, left))
        try:
            return await self._endpoint.post(self._url, Body(request.parts), request.headers, seconds)
        except Unreachable as error:
            raise _Failed(str(error)) from None

    def _refused(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelError | _Failed:
        said = refusal(self._endpoint.without_key(body))
        what = self._endpoint.hide_key(f"status {status}{f': {said.message}' if said.message else ''}")
        unpaid = status == _UNPAID or (status < 500 and said.no_quota)
        if (status in _RETRIED or status >= 500) and not unpaid:
            return _Failed(what, retry_after(headers))
        message = f"{self._who} refused: {what}{_advice(status, self.address, self._dialect.vendor, unpaid=unpaid)}"
        if status in (400, 413, 422) and said.too_long:
            return ContextTooLong(message, status)
        return ModelForbidden(message, status) if unpaid or status in _FORBIDDEN else ModelRefused(message, status)

    @property
    def shown(self) -> str:
        """See `ModelPlugin`."""
        return self.address.shown

    @classmethod
    def place(cls, settings: ModelSettings) -> str:
        """See `ModelPlugin`."""
        return settings.base_url or f"${cls.dialect.vendor.url_variable}, or the public API"

    @classmethod
    def how_to_reach(cls, name: str) -> str:
        """See `ModelPlugin`."""
        vendor = cls.dialect.vendor
        return f"set {vendor.url_variable} (or {name}.base_url) and {vendor.key_variable}"

    @property
    def knows_price(self) -> bool:
        """Whether the cost of an answer can be told."""
        return self._price is not None

    def load(self) -> EndpointLoad:
        """What goes on at this moment."""
        return self._endpoint.load()

    async def check(self) -> tuple[str, ...]:
        """Whether endpoint and key work: the names of the models that it lists, none where it has no list."""
        limit = min(_CHECK_S, self.settings.timeout)
        url = self.address.path("models").update_query(self._dialect.models_query)
        try:
            status, headers, body = await self._endpoint.get(url, limit)
        except Unreachable as error:
            raise ModelError(f"{self._who}: {self._endpoint.hide_key(str(error))}") from None
        if status in (404, 405, 501):
            return ()
        if status != 200:
            refused = self._refused(status, headers, body)
            raise refused if isinstance(refused, ModelError) else ModelError(f"{self._who}: {refused}")
        try:
            return tuple(model.id for model in msgspec.json.decode(body, type=_Models).data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return ()

    @property
    def _who(self) -> str:
        return f"model {plain(self.settings.name, 200)} at {self.address.shown}"

    def _tell_failure(self, call: ModelCall, tries: int, cause: str, wait: float | None = None) -> None:
        """A request brought nothing; it is made again after a wait, where there is one."""
        endpoint, model, session = self.address.shown, self.settings.name, call.session
        self._sink.emit(
            ModelFailed(endpoint=endpoint, model=model, reason=cause, tries=tries, session=session)
            if wait is None
            else ModelRetried(endpoint=endpoint, model=model, reason=cause, tries=tries, pause_s=wait, session=session)
        )

    def _tell_answer(self, completion: Completion, call: ModelCall, seconds: float) -> None:
        self._sink.emit(
            ModelAnswered(
                endpoint=self.address.shown,
                model=self.settings.name,
                session=call.session,
                seconds=seconds,
                tries=completion.tries,
                prompt_tokens=completion.prompt_tokens,
                completion_tokens=completion.completion_tokens,
            )
        )


class _Listed(Record, frozen=True):
    id: str


class _Models(Record, frozen=True):
    data: tuple[_Listed, ...] = ()


def _left(call: ModelCall) -> float | None:
    return None if call.deadline is None else call.deadline - running_time()


def _advice(status: int, address: Address, vendor: Vendor, *, unpaid: bool) -> str:
    if unpaid:
        return " (the account has no quota left: asking again does not help)"
    if status == 403:
        return " (if every request is refused, check the key and the model)"
    if status == 401:
        known = "the key is not accepted" if address.key is not None else "no key is set"
        return f" ({known}: set api_key, or ${vendor.key_variable})"
    if status == 404 and address.url.path in ("", "/"):
        return f" (base_url has no path; most servers want one: {address.url.with_query(None) / 'v1'}?)"
    if status == 404:
        return " (are the model's name and base_url right?)"
    if 300 <= status < 400:
        return " (redirects are not followed, for the key would travel with them: set base_url to the final address)"
    return ""
