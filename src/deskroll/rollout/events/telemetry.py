"""Telemetry: a run's events as OpenTelemetry traces, sent to a collector over OTLP/HTTP (`telemetry.otlp`).

A trace is an episode; below it its attempts, below each its stages, below these the calls of a model. Guarantees: the
run goes on whatever the collector does; what cannot be sent is dropped, and said once; closing waits `_CLOSE_S` for it.
Headers, certificates and the like are what OpenTelemetry's own variables say (OTEL_EXPORTER_OTLP_HEADERS, ...).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from deskroll.errors import ConfigError, FailureClass, MissingDependency
from deskroll.events import (
    AttemptDropped,
    AttemptEnded,
    AttemptStarted,
    EpisodeSealed,
    ModelAnswered,
    RunOpened,
    StageEntered,
)
from deskroll.rollout.events.hub import EventHub
from deskroll.rollout.redaction import masked_text
from deskroll.types import EpisodeKey

try:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.trace import Span, StatusCode, set_span_in_context
except ImportError:
    raise MissingDependency("telemetry.otlp needs OpenTelemetry; run:  pip install 'deskroll[otel]'") from None

_CLOSE_S = 5.0
_SEND_S = 5.0
_PATH = "/v1/traces"
_MOST_WAITING = 16_384
_log = logging.getLogger(__name__)


@dataclass
class _Trace:
    """An episode that is not over: its span, and those of its last attempt."""

    episode: Span
    attempt: Span | None = None
    stage: Span | None = None


class Telemetry:
    """Use with `async with`."""

    def __init__(self, hub: EventHub, address: str) -> None:
        self._exporter = _Once(OTLPSpanExporter(endpoint=_endpoint(address), timeout=_SEND_S), address)
        resource = Resource.create({"service.name": "deskroll"})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter, max_queue_size=_MOST_WAITING))
        self._tracer = self._provider.get_tracer("deskroll")
        self._traces: dict[EpisodeKey, _Trace] = {}
        self._run = ""
        hub.on(RunOpened, self._open)
        hub.on(AttemptStarted, self._start)
        hub.on(StageEntered, self._enter)
        hub.on(ModelAnswered, self._ask)
        hub.on(AttemptEnded, self._end)
        hub.on(AttemptDropped, self._drop)
        hub.on(EpisodeSealed, self._seal)

    async def __aenter__(self) -> Telemetry:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for trace in self._traces.values():
            for span in (trace.stage, trace.attempt, trace.episode):
                if span is not None:
                    span.end()
        self._traces.clear()
        loop, over = asyncio.get_running_loop(), asyncio.Event()

        def send_rest() -> None:
            self._provider.shutdown()
            loop.call_soon_threadsafe(over.set)

        # A thread of its own, which nobody waits for: a collector that hangs must not keep the process.
        threading.Thread(target=send_rest, name="last traces", daemon=True).start()
        try:
            await asyncio.wait_for(over.wait(), _CLOSE_S)
        except TimeoutError:
            self._exporter.tell("it did not take the last traces in time")

    def _open(self, event: RunOpened) -> None:
        self._run = event.run_id

    def _start(self, event: AttemptStarted) -> None:
        if (trace := self._traces.get(event.key)) is None:
            key = event.key
            name = f"{key.phase}/{key.round}/{key.task}/{key.sample}"
            about = {"deskroll.run": self._run, "deskroll.task": key.task, "deskroll.phase": key.phase}
            episode = self._tracer.start_span(f"episode {name}", start_time=_ns(event.at), attributes=about)
            trace = self._traces[key] = _Trace(episode)
        trace.attempt = self._span(f"attempt {event.attempt}", trace.episode, event.at)
        trace.stage = None

    def _enter(self, event: StageEntered) -> None:
        if (trace := self._traces.get(event.key)) is None or trace.attempt is None:
            return
        _close(trace.stage, event.at)
        trace.stage = self._span(str(event.stage), trace.attempt, event.at)
        trace.stage.set_attribute("deskroll.turn", event.turn)
        if event.desktop:
            trace.stage.set_attribute("deskroll.desktop", event.desktop)

    def _ask(self, event: ModelAnswered) -> None:
        phase, round_, task, sample = _parts(event.session)
        trace = self._traces.get(EpisodeKey(phase=phase, round=round_, task=task, sample=sample))
        if trace is None or trace.stage is None:
            return
        call = self._span("model call", trace.stage, event.at - event.seconds)
        call.set_attributes({
            "gen_ai.request.model": event.model,
            "server.address": event.endpoint,
            "gen_ai.usage.input_tokens": event.prompt_tokens,
            "gen_ai.usage.output_tokens": event.completion_tokens,
            "deskroll.tries": event.tries,
        })  # fmt: skip
        call.end(_ns(event.at))

    def _end(self, event: AttemptEnded) -> None:
        if (trace := self._traces.get(event.key)) is None or trace.attempt is None:
            return
        trace.attempt.set_attribute("deskroll.stop", str(event.stop))
        if event.failure is not None:
            trace.attempt.set_attribute("deskroll.failure", str(event.failure))
            trace.attempt.set_status(StatusCode.ERROR, event.reason)
        self._leave(trace, event.at)

    def _drop(self, event: AttemptDropped) -> None:
        if (trace := self._traces.pop(event.key, None)) is not None:
            self._leave(trace, event.at)
            trace.episode.end(_ns(event.at))

    def _seal(self, event: EpisodeSealed) -> None:
        if (trace := self._traces.pop(event.key, None)) is not None:
            if event.score is not None:
                trace.episode.set_attribute("deskroll.score", event.score)
            elif event.failure is not FailureClass.CANCELLED:  # that one was given up, which is no error
                trace.episode.set_status(StatusCode.ERROR, f"unscored: {event.failure}")
            trace.episode.end(_ns(event.at))

    def _span(self, name: str, parent: Span, at: float) -> Span:
        return self._tracer.start_span(name, set_span_in_context(parent), start_time=_ns(at))

    @staticmethod
    def _leave(trace: _Trace, at: float) -> None:
        _close(trace.stage, at)
        _close(trace.attempt, at)
        trace.stage = trace.attempt = None


class _Once(SpanExporter):
    """Sends, and says once that something could not be sent; OpenTelemetry itself would say it each time."""

    def __init__(self, exporter: OTLPSpanExporter, address: str) -> None:
        self._exporter = exporter
        self._address = masked_text(address)
        self._told = False
        logger = logging.getLogger("opentelemetry")
        logger.propagate = False
        logger.addHandler(logging.NullHandler())

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See `SpanExporter`."""
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self.tell("it does not take them")
        return result

    def shutdown(self) -> None:
        """See `SpanExporter`."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def tell(self, why: str) -> None:
        """Say that traces are lost."""
        if not self._told:
            self._told = True
            _log.warning("traces are missing at the collector at %s: %s; the run goes on", self._address, why)


def _close(span: Span | None, at: float) -> None:
    if span is not None:
        span.end(_ns(at))


def _endpoint(address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(f"telemetry.otlp is {address!r}; write an address such as http://127.0.0.1:4318")
    return address if parts.path.rstrip("/") else address.rstrip("/") + _PATH


def _ns(at: float) -> int:
    return int(at * 1e9)


def _parts(session: str) -> tuple[str, int, str, int]:
    """The key that a session is called by; a task's id may hold a slash."""
    phase, _, rest = session.partition("/")
    round_, _, rest = rest.partition("/")
    task, _, sample = rest.rpartition("/")
    if not (round_.isdigit() and sample.isdigit()):
        return session, 0, "", 0
    return phase, int(round_), task, int(sample)
