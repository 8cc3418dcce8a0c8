"""Exchange: one server, asked once: a request goes out, and an answer is made of what comes back.

Owns what an answer, a refusal and a broken connection mean. Patience is `ModelClient`'s: what may be asked again is
`Failed`, and says what it tells of the server. The key is in no message.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import msgspec

from deskroll.clocks import running_time
from deskroll.errors import ModelError, plain
from deskroll.models.base import ContextTooLong, EndpointLoad, ModelCall, ModelForbidden, ModelRefused
from deskroll.models.body import Body
from deskroll.models.dialect import Answered, Dialect, Request
from deskroll.models.endpoint import Endpoint, Unreachable
from deskroll.models.exact import InexactAnswer, inexact
from deskroll.models.prices import Tariff
from deskroll.models.retry import retry_after
from deskroll.models.router.roster import Outcome
from deskroll.models.settings import Address, ModelSettings, Vendor
from deskroll.models.wire import Unusable, refusal
from deskroll.types import Completion, Record, Sampling

_RETRIED = frozenset((408, 409, 425, 429))
_OUTCOMES = {429: Outcome.THROTTLED, 503: Outcome.UNAVAILABLE}
_UNPAID = 402
_FORBIDDEN = (401, 404)
"""Nobody who asks is answered; a 403 may be about this one request, whose text a gateway has flagged."""
_CHECK_S = 30.0
_SESSION = "X-Session-ID"
_PLAIN = "/#:@ "
_ABORTED = "abort"
"""How a vLLM ends what runs when it is paused with `mode=abort`: half an answer, and nobody's fault."""


class Failed(Exception):
    """One request brought no usable answer; another one may."""

    def __init__(
        self,
        cause: str,
        outcome: Outcome = Outcome.FAILED,
        *,
        after: float | None = None,
        error: type[ModelError] = ModelError,
    ) -> None:
        super().__init__(cause)
        self.outcome = outcome
        self.after = after
        self.error = error
        """What it is where no other request is made."""


class Exchange:
    """With one server, about one model."""

    def __init__(
        self, endpoint: Endpoint, dialect: Dialect, settings: ModelSettings, model: str, price: Tariff | None
    ) -> None:
        self.endpoint = endpoint
        self.address = endpoint.address
        self.model = model
        self.price = price
        self._dialect = dialect
        self._settings = settings
        self._of_extra = settings.sampling_of_extra()
        self._url = self.address.path(dialect.path)
        self.request = dialect.request
        self.names_sessions = False
        """Whether the server is told who asks."""

    async def ask(self, request: Request, sampling: Sampling, tries: int, call: ModelCall) -> Completion:
        """One request; raises `Failed` where another one may be answered, and `ModelError` where none will."""
        seconds, left = self._settings.timeout, left_of(call)
        if left is not None:
            seconds = min(seconds, max(0.0, left))
        try:
            told = self._headers(request, call)
            status, headers, body = await self.endpoint.post(self._url, Body(request.parts), told, seconds)
        except Unreachable as error:
            outcome = Outcome.UNREACHABLE if error.unconnected else Outcome.FAILED
            raise Failed(self.endpoint.hide_key(str(error)), outcome) from None
        if status != 200:
            raise self._refused(status, headers, body)
        known = Answered(
            asked=self.model,
            price=self.price,
            endpoint=call.endpoint or self.address.shown,
            version=call.version or headers.get("x-model-version") or headers.get("version") or "",
            sampling=msgspec.structs.replace(sampling, **self._of_extra) if self._of_extra else sampling,
            tries=tries,
        )
        try:
            completion = self._dialect.read(body, known)
        except Unusable as error:
            said = refusal(self.endpoint.without_key(body)).message
            raise Failed(f"{error}{f'; it says: {said}' if said else ''}") from None
        if completion.finish_reason == _ABORTED:
            raise Failed("the answer was cut off, for the server's weights change", Outcome.ABANDONED)
        if self._settings.exact and (why := inexact(completion)):
            raise Failed(f"the answer is not exact: {why}", error=InexactAnswer)
        self.endpoint.note_answer()
        return completion

    async def check(self) -> tuple[str, ...]:
        """Whether endpoint and key work: the names of the models that it lists, none where it has no list."""
        limit = min(_CHECK_S, self._settings.timeout)
        url = self.address.path("models").update_query(self._dialect.models_query)
        try:
            status, headers, body = await self.endpoint.get(url, limit)
        except Unreachable as error:
            raise ModelError(f"{self.who}: {self.endpoint.hide_key(str(error))}") from None
        if status in (404, 405, 501):
            return ()
        if status != 200:
            refused = self._refused(status, headers, body)
            raise refused if isinstance(refused, ModelError) else ModelError(f"{self.who}: {refused}")
        try:
            return tuple(model.id for model in msgspec.json.decode(body, type=_Models).data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return ()

    def load(self) -> EndpointLoad:
        """What goes on at this moment."""
        return self.endpoint.load()

    @property
    def who(self) -> str:
        """What is asked, and where."""
        return f"model {plain(self.model, 200)} at {self.address.shown}"

    def _headers(self, request: Request, call: ModelCall) -> Mapping[str, str] | None:
        if not (self.names_sessions and call.session):
            return request.headers
        return {**(request.headers or {}), _SESSION: quote(call.session, safe=_PLAIN)}

    def _refused(self, status: int, headers: Mapping[str, str], body: bytes) -> ModelError | Failed:
        said = refusal(self.endpoint.without_key(body))
        what = self.endpoint.hide_key(f"status {status}{f': {said.message}' if said.message else ''}")
        unpaid = status == _UNPAID or (status < 500 and said.no_quota)
        if (status in _RETRIED or status >= 500) and not unpaid:
            return Failed(what, _OUTCOMES.get(status, Outcome.FAILED), after=retry_after(headers))
        message = f"{self.who} refused: {what}{_advice(status, self.address, self._dialect.vendor, unpaid=unpaid)}"
        if status in (400, 413, 422) and said.too_long:
            return ContextTooLong(message, status)
        return ModelForbidden(message, status) if unpaid or status in _FORBIDDEN else ModelRefused(message, status)


class _Listed(Record, frozen=True):
    id: str


class _Models(Record, frozen=True):
    data: tuple[_Listed, ...] = ()


def left_of(call: ModelCall) -> float | None:
    """Seconds until nobody wants the answer any more; None: there is no such moment."""
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
