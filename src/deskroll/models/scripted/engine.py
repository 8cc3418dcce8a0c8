"""Engine: what pretends to be vLLM's: a queue, weights that can be exchanged, adapters, caches, pauses.

Owns the timer that moves its schedule on. Guarantees: every token of an answer is marked with the weights that were
loaded when it was made and with those that had read its prompt; a client that goes away leaves nothing behind. A
reload that fails breaks it, as it was seen with vLLM 0.32: all looks well until the next request, which ends it.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deskroll.errors import InputError
from deskroll.models.scripted.caches import Caches, Context
from deskroll.models.scripted.requests import ChatMessage, ChatRequest, Refused
from deskroll.models.scripted.schedule import Generation, PauseMode, Schedule
from deskroll.models.scripted.settings import Reloading, Trouble, VllmSettings
from deskroll.models.scripted.weights import Weights, WeightsMissing


class ReloadFailed(Exception):
    """New weights could not be loaded."""


class EngineDead(Exception):
    """Nothing can be generated any more."""


class Condition(enum.Enum):
    """How an engine is."""

    WELL = enum.auto()
    BROKEN = enum.auto()
    """It has no weights, and nobody has noticed."""
    DEAD = enum.auto()
    """It was asked without weights, and has ended."""


@dataclass(eq=False, kw_only=True)
class _Request(Generation):
    messages: Sequence[ChatMessage]
    adapter: Weights | None
    done: asyncio.Future[None]
    context: Context | None = None


class Engine:
    """Use it inside of a running loop; `close` ends its timer."""

    def __init__(self, settings: VllmSettings, weights: Weights) -> None:
        self.settings = settings
        self.weights = weights
        self.version = "default"
        """What `/update_weight_version` has said; it has nothing to do with the weights."""
        self.condition = Condition.WELL
        self.adapters: dict[str, Weights] = {}
        self.caches = Caches()
        self.schedule: Schedule[_Request] = Schedule(settings.max_running, started=self._started, ended=self._ended)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    @classmethod
    def start(cls, settings: VllmSettings) -> Engine:
        """An engine with the weights that it is told to start with."""
        try:
            return cls(settings, Weights.read(settings.weights) if settings.weights else Weights())
        except (WeightsMissing, OSError) as problem:
            raise InputError(f"vllm.weights: {problem}") from None

    def check_served(self, name: str) -> None:
        """Refuse a model that is neither the one that is served nor one of its adapters."""
        if name != self.settings.name and name not in self.adapters:
            raise Refused(f"The model `{name}` does not exist.", "model", 404)

    async def generate(self, asked: ChatRequest, tokens: int, seconds: float) -> Generation:
        """Wait in the queue, then for as long as the answer takes; a pause may end it early (`aborted`)."""
        if self.condition is not Condition.WELL:
            self.condition = Condition.DEAD
            raise EngineDead("EngineCore encountered an issue. See stack trace (above) for the root cause.")
        adapter, done = self.adapters.get(asked.model), self._loop.create_future()
        request = _Request(tokens, seconds, messages=asked.messages, adapter=adapter, done=done)
        self.schedule.submit(request, self._loop.time())
        self._wind()
        try:
            await request.done
        except asyncio.CancelledError:
            self.schedule.drop(request, self._loop.time())
            self._wind()
            raise
        return request

    async def pause(self, mode: PauseMode, *, clear_cache: bool = True) -> None:
        """Hold new requests; with `wait`, come back when those that run are done.

        What caches hold is thrown away, and what stands still goes back to the queue for it, unless told otherwise.
        """
        self.schedule.pause(mode, self._loop.time())
        self._wind()
        if mode is PauseMode.WAIT:
            await self._idle.wait()
        if clear_cache:
            self.reset_prefixes(preempt=True)
            self.caches.forget_images()

    def resume(self) -> None:
        """End a pause."""
        self.schedule.resume(self._loop.time())
        self._wind()

    async def reload(self, folder: Path, trouble: Trouble) -> None:
        """Load other weights in place, or what the trouble makes of it."""
        await asyncio.sleep(trouble.reload_s)
        self.condition = Condition.BROKEN  # the old tensors are gone before the new ones are looked for
        try:
            new = Weights.read(folder)
        except (WeightsMissing, OSError) as problem:
            raise ReloadFailed(f"Call to reload_weights method failed: {problem}") from None
        if trouble.reload is Reloading.FAILS:
            raise ReloadFailed("Call to reload_weights method failed: a scripted fault")
        self.condition = Condition.WELL
        if trouble.reload is Reloading.WORKS:
            self._exchange(new)

    def reset_prefixes(self, *, preempt: bool) -> bool:
        """Forget prompts, unless requests that run hold them; `preempt` sends those back to the queue first."""
        if preempt:
            self.schedule.preempt(self._loop.time())
        free = not self.schedule.running
        if free:
            self.caches.forget_prefixes()
        self.schedule.look(self._loop.time())
        self._wind()
        return free

    def close(self) -> None:
        """End the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _exchange(self, weights: Weights) -> None:
        self.schedule.look(self._loop.time())
        for each in (*self.schedule.running, *self.schedule.waiting):
            self._stamp(each, each.made)
        self.weights = weights

    def _started(self, generation: _Request) -> None:
        self._idle.clear()
        generation.context = self.caches.read(generation.messages, self.weights, generation.adapter)

    def _ended(self, generation: _Request) -> None:
        self._stamp(generation, generation.made if generation.aborted else generation.tokens)
        if not generation.done.done():
            generation.done.set_result(None)

    def _stamp(self, generation: _Request, made: int) -> None:
        if generation.context is not None:
            weights = self.weights.mixed(generation.adapter)
            generation.stamp(made, weights.part("token") + generation.context.shift(weights))

    def _wind(self) -> None:
        """Set the timer to when the next request is done."""
        if not self.schedule.running:
            self._idle.set()
        self.close()
        due = self.schedule.due
        self._timer = None if due is None else self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self.schedule.look(self._loop.time())
        self._wind()
