"""Models: those that jobs name, before anything is started for them: served where that is needed, and asked once.

Guarantees: the same model is served and checked once, however many jobs and rounds name it, however they sample, and
whichever of its versions they ask for; it is served until the block ends. One that cannot be asked is a `ConfigError`
for whoever waits for it, and is tried anew for the next one. It is served and let go by one task of its own: whoever is
cancelled while it waits leaves nothing.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TypeVar

from deskroll.agents import NO_MODEL, agent_kind, agents_model
from deskroll.errors import ConfigError, DeskrollError, ModelError, comes_from_outside
from deskroll.events import Event, EventSink
from deskroll.models.base import ModelRefused
from deskroll.models.listed import is_listed, unlisted
from deskroll.models.plugin import ModelPlugin, model_kind
from deskroll.models.settings import SAMPLING, ModelSettings
from deskroll.models.vllm.waiting import tell_waiting
from deskroll.rollout.spec import EpisodeSpec, key_of

_log = logging.getLogger(__name__)
_CHECK_S = 15.0
_MOST_KEPT = 1000
_BY_JOB = (*SAMPLING, "served_as")
"""Settings in which jobs may differ that ask the same servers."""
Spec = TypeVar("Spec", bound=EpisodeSpec)
_Answer = asyncio.Future[tuple[ModelSettings, bool]]
"""The settings to ask it with, and whether its price is known."""


class Models:
    """Use with `async with`."""

    def __init__(self) -> None:
        self._events = LateSink()
        self._answers: dict[tuple[str, ...], _Answer] = {}
        """One for each distinct model: a name, an address and a task that waits, for as long as the block lasts."""
        self._keepers: dict[asyncio.Task[None], _Answer] = {}
        self._closing = asyncio.Event()

    async def __aenter__(self) -> Models:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._closing.set()
        keepers = dict(self._keepers)
        for keeper, answer in keepers.items():
            if not answer.done():
                keeper.cancel()
        if keepers:
            await asyncio.wait(keepers)
        for keeper in keepers:
            if not keeper.cancelled():
                keeper.result()

    def tell(self, sink: EventSink) -> None:
        """Tell this sink what happens to servers, and what has so far."""
        self._events.lead_to(sink)

    async def serving(self, spec: Spec) -> Spec:
        """The spec with models that are served, where that takes more than asking; whether they answer shows."""
        return await self._found(spec, asked=False)

    async def answering(self, spec: Spec) -> Spec:
        """The spec with models that are served and answer."""
        return await self._found(spec, asked=True)

    async def _found(self, spec: Spec, *, asked: bool) -> Spec:
        limits = (name for name in ("max_cost_usd", "run_cost_usd") if getattr(spec.limits, name, None) is not None)
        limited, found = next(limits, ""), {}
        if (agent := agent_kind(spec.agent)).protocol != NO_MODEL:
            found["model"] = await self._answer("model", spec.model, agents_model(agent, spec.model), limited, asked)
        if spec.judge is not None and spec.evaluate:
            kind = model_kind(spec.judge, name="judge")
            found["judge"] = await self._answer("judge", spec.judge, kind, limited, asked)
        return spec.model_copy(update=found)

    async def _answer(
        self, name: str, model: ModelSettings, kind: type[ModelPlugin], limited: str, asked: bool
    ) -> ModelSettings:
        """The settings to ask a model with; `limited`: a limit that needs its price."""
        key = (name, str(kind), model.model_dump_json(exclude={"api_key", *_BY_JOB}), key_of(model))
        if (answer := self._answers.get(key)) is None:
            answer = self._answers[key] = asyncio.get_running_loop().create_future()
            keeper = asyncio.create_task(self._keep(key, model, kind, answer, asked), name=f"{name} {model.name}")
            self._keepers[keeper] = answer
            keeper.add_done_callback(self._keepers.pop)
        served, priced = await asyncio.shield(answer)  # others may wait for it, too
        if limited and not priced:
            unknown = f"the price of {model.name} is not known"
            raise ConfigError(f"limits.{limited} is set, and {unknown}: set {name}.price, too")
        return served.model_copy(update={each: getattr(model, each) for each in _BY_JOB})

    async def _keep(
        self, key: tuple[str, ...], model: ModelSettings, kind: type[ModelPlugin], answer: _Answer, asked: bool
    ) -> None:
        name = key[0]
        try:
            async with kind.serve(model, name, self._events) as served:
                answer.set_result((served, await _check(served, name, kind) if asked else True))
                async with tell_waiting(model.pool, lambda line: _log.warning("%s: %s", name, line)):
                    await self._closing.wait()
        except BaseException as error:
            told, answered = _told(error, name), answer.done()
            if not answered:
                del self._answers[key]
                answer.set_exception(told)
                answer.exception()  # whoever asked may be gone
            if comes_from_outside(error):
                raise
            if answered:
                raise told from told.__cause__


def _told(error: BaseException, name: str) -> Exception:
    """What ended a model, for whoever waits for its answer, or for its end."""
    if isinstance(error, Exception):
        return error
    if comes_from_outside(error):
        told = DeskrollError(f"{name}: {type(error).__name__} before it answered: it is not served any more")
    else:
        told = ConfigError(f"{name}: what serves it wanted to end the whole program ({type(error).__name__}: {error})")
    told.__cause__ = error
    return told


class LateSink:
    """Keeps events until it is known where they go: servers start before the run that is told of them."""

    def __init__(self) -> None:
        self._kept: list[Event] = []
        self._to: EventSink | None = None

    def lead_to(self, sink: EventSink) -> None:
        """There, from now on, and what was kept first."""
        self._to = sink
        kept, self._kept = self._kept, []
        for event in kept:
            sink.emit(event)

    def emit(self, event: Event) -> None:
        """Take one event."""
        if self._to is not None:
            self._to.emit(event)
        elif len(self._kept) < _MOST_KEPT:
            self._kept.append(event)


async def _check(model: ModelSettings, name: str, kind: type[ModelPlugin]) -> bool:
    """Find out before any desktop is started that a model cannot be asked; whether its price is known."""
    settings = model.model_copy(update={"timeout": _CHECK_S, "retries": 1})
    async with kind(settings) as client:
        try:
            listed = await client.check()
        except ModelRefused as error:
            raise ConfigError(f"{name}: {error}") from None
        except ModelError as error:
            raise ConfigError(f"{name}: {error}; {kind.how_to_reach(name)}, or name a script: scripted:FILE") from None
        if listed and not is_listed(model.name, listed):
            _log.warning("%s: %s", name, unlisted(model.name, client.shown, listed))
        return client.knows_price
