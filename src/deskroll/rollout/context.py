"""What a process runs episodes with: `ProcessContext` for all of them, `EpisodeContext` for those of one spec.

Owned once a process: the storage, the pool's client, the models' clients. Guarantees: a desktop that is handed out goes
back to its pool, however the episode ends; specs that ask the same model ask it through one client, which is closed
once none of them is left and another one comes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol

from pydantic import SecretStr

from deskroll.actions import Action
from deskroll.agents import NO_MODEL, Agent, AgentContext, agent_kind, agent_settings, agents_model
from deskroll.config import check
from deskroll.desktops.base import Desktop, DesktopSpec
from deskroll.desktops.lease import Lease
from deskroll.desktops.service import PoolClient
from deskroll.envs import Env, EnvContext, env_kind, env_settings
from deskroll.errors import (
    ConfigError,
    DeskrollError,
    FailureClass,
    InputError,
    NoDesktop,
    StoreError,
    boundary,
    foreign_code,
)
from deskroll.events import EventSink, guarded
from deskroll.importing import file_digest
from deskroll.models.base import EndpointLoad, Model, ModelCall
from deskroll.models.plugin import ModelPlugin, model_kind
from deskroll.models.settings import SAMPLING, ModelSettings
from deskroll.rollout.bound_model import BoundModel, NotedModel, Notes, call_of, over, session_of
from deskroll.rollout.live_attempt import LiveAttempt
from deskroll.rollout.orders import Order, WorkerSetup
from deskroll.rollout.spec import Definition, EpisodeSpec
from deskroll.rollout.traces import Traces
from deskroll.store import AttemptWriter, Storage, paths
from deskroll.types import Stage, Tool, ToolRequest

_log = logging.getLogger(__name__)


class Leases(Protocol):
    """Whoever hands out desktops: a pool in this process, or a client of one elsewhere."""

    def lease(
        self, spec: DesktopSpec | None = None, *, priority: int = 0, group: str = "", timeout: float | None = None
    ) -> AbstractAsyncContextManager[Lease]:
        """Wait for a desktop and hold it for the length of the block."""


class ProcessContext:
    """What all episodes of this process share. Use with `async with ProcessContext.open(...)`."""

    def __init__(
        self,
        setup: WorkerSetup,
        leases: Leases | None,
        sink: EventSink | None = None,
        *,
        show_traces: bool = False,
        model: ModelPlugin | None = None,
    ) -> None:
        self.setup = setup
        self._handed = model
        """An object that somebody else has opened, and closes."""
        self.storage = Storage.at(setup.storage)
        self.leases = leases
        self.sink = guarded(sink)
        self.show_traces = show_traces
        self._clients: dict[tuple[str, str, type[ModelPlugin]], tuple[ModelPlugin, AsyncExitStack]] = {}
        """Each with what closes it."""
        self._env_kinds: set[type[Env]] = set()
        """Those of contexts that were forgotten."""
        self._definitions: dict[str, Definition] = {}
        self._contexts: dict[str, EpisodeContext] = {}
        self._opening = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        setup: WorkerSetup,
        *,
        leases: Leases | None = None,
        sink: EventSink | None = None,
        show_traces: bool = False,
        model: ModelPlugin | None = None,
    ) -> AsyncIterator[ProcessContext]:
        """Open it; `leases` where the pool is in this process, `model` an object that models of its kind are."""
        await _check_place(setup.storage)
        async with AsyncExitStack() as stack:
            if leases is None and setup.pool:
                client = PoolClient(setup.pool, wait=setup.pool_wait, plan=setup.plan)
                leases = await stack.enter_async_context(client)
            context = cls(setup, leases, sink, show_traces=show_traces, model=model)
            stack.push_async_callback(context._close_unused)
            stack.push_async_callback(context.close_shared)
            yield context

    def define(self, definition: Definition) -> None:
        """Know a spec from now on; what it names is looked for when its first order comes."""
        self._definitions.setdefault(definition.digest, definition)

    async def of(self, digest: str) -> EpisodeContext:
        """The context of episodes whose spec was defined under that digest; ConfigError where it cannot be had."""
        if (context := self._contexts.get(digest)) is not None:
            return context
        async with self._opening:
            if (context := self._contexts.get(digest)) is not None:
                return context
            if (definition := self._definitions.get(digest)) is None:
                raise ConfigError("what this is made of was forgotten: its job has ended")
            try:
                context = await EpisodeContext.open(definition, self)
            except DeskrollError as error:
                raise ConfigError(str(error)) from error
            if digest in self._definitions:
                self._contexts[digest] = context
            try:
                await self._close_unused()
            except Exception:  # noqa: BLE001  (it is another spec's, and must not end an attempt of this one)
                _log.exception("a model that nobody asks any more could not be closed")
        return context

    def forget(self, digest: str) -> None:
        """Let go of a spec; clients that no other one uses are closed when the next one is opened."""
        self._definitions.pop(digest, None)
        if (context := self._contexts.pop(digest, None)) is not None:
            self._env_kinds.update(context.env_kinds)

    async def client(self, settings: ModelSettings, key: str, kind: type[ModelPlugin]) -> ModelPlugin:
        """The client of a model, the same for all that ask it, however they sample."""
        if self._handed is not None and type(self._handed) is kind:
            return self._handed
        name = (settings.model_dump_json(exclude={"api_key", *SAMPLING}), key, kind)
        if name not in self._clients:
            stack = AsyncExitStack()
            client = kind(settings, sink=self.sink, silent_after=self.setup.notice_after)
            self._clients[name] = (await stack.enter_async_context(client), stack)
        return self._clients[name][0]

    async def _close_unused(self) -> None:
        used = [client for context in self._contexts.values() for client in context.models]
        async with AsyncExitStack() as closing:
            for name, (client, stack) in list(self._clients.items()):
                if client not in used:
                    del self._clients[name]
                    closing.push_async_callback(stack.aclose)

    def endpoints(self) -> tuple[EndpointLoad, ...]:
        """How the models' servers do."""
        asked = [client for client, _ in self._clients.values()] + ([self._handed] if self._handed else [])
        return tuple(load for client in asked for load in client.loads())

    async def close_shared(self) -> None:
        """End what environments share among the attempts of this process."""
        for digest in list(self._contexts):
            self.forget(digest)
        for kind in self._env_kinds:
            await kind.close_shared()


class EpisodeContext:
    """What the episodes of one spec share. Made by `ProcessContext.of`."""

    def __init__(
        self, spec: EpisodeSpec, process: ProcessContext, model: ModelPlugin, judge: ModelPlugin, folder: str
    ) -> None:
        self.spec = spec
        self.sink = process.sink
        self.storage = process.storage
        self.traces = Traces()
        """What is kept and told of exceptions in others' code."""
        self._agent_kind = agent_kind(spec.agent)
        self._agent_settings = agent_settings(self._agent_kind, spec.agent_options, spec.agent)
        self.model_name = "" if self._agent_kind.protocol == NO_MODEL else model.settings.name
        """The model that the agent asks; empty where it asks none."""
        self._model = model
        self._judge = judge
        self._judge_call = ModelCall(sampling=(spec.judge or spec.model).sampling)
        self._process = process
        self._folder = Path(folder)
        self._envs: dict[str, tuple[type[Env], object]] = {}
        self._kind("")

    @classmethod
    async def open(cls, definition: Definition, process: ProcessContext) -> EpisodeContext:
        """Find what the spec names, and open clients for its models."""
        _check_files(definition.plug_ins)
        spec, keys = check(EpisodeSpec, definition.spec, "spec"), definition.keys
        with foreign_code("the agent or the environment"):
            kind = agents_model(agent_kind(spec.agent), spec.model)
            model = judge = await process.client(_with_key(spec.model, keys.model), keys.model, kind)
            if spec.judge is not None:
                kind = model_kind(spec.judge)
                judge = await process.client(_with_key(spec.judge, keys.judge), keys.judge, kind)
            context = cls(spec, process, model, judge, definition.folder)
        context.traces = Traces.of_spec(definition, whole=process.show_traces)
        return context

    @property
    def models(self) -> tuple[ModelPlugin, ModelPlugin]:
        """The clients that it asks."""
        return self._model, self._judge

    @property
    def env_kinds(self) -> list[type[Env]]:
        """The kinds of environment that were used so far."""
        return [kind for kind, _ in self._envs.values()]

    @asynccontextmanager
    async def desktop(self, live: LiveAttempt) -> AsyncIterator[Desktop | None]:
        """A desktop for the length of the block, where the task needs one."""
        order = live.order
        kind, settings = self._kind(order.task.env)
        spec = kind.desktop_spec(order.task, settings)
        if spec is None:
            yield None
            return
        if (leases := self._process.leases) is None:
            raise NoDesktop(f"task {order.task.id!r} needs a desktop, and this run has no pool")
        live.enter(Stage.DESKTOP)
        group = f"{order.key.phase}/{order.key.round}/{order.key.task}"
        async with leases.lease(spec, priority=order.priority, group=group) as lease:
            live.desktop, live.look = lease.address.id, lease.desktop.screenshot
            try:
                yield lease.desktop
            except BaseException as error:
                blamed = live.stopped_by or error
                if isinstance(blamed, DeskrollError) and blamed.failure in (FailureClass.DESKTOP, FailureClass.SETUP):
                    lease.suspect = str(blamed)  # the next attempt shall have another one
                raise
            finally:
                live.look = None

    def env(self, order: Order, desktop: Desktop | None, notes: Notes) -> Env:
        """The environment of one attempt, of which these notes are taken."""
        task = order.task
        kind, settings = self._kind(task.env)
        context = EnvContext(
            desktop=desktop,
            model=NotedModel(self._bound(order), notes, "asked.json"),
            judge=NotedModel(BoundModel(self._judge, self._judge_call), notes, "judged.json"),
            raw_tree=self._agent_kind.reads_tree,
            keep=notes.keep,
            folder=self._folder,
        )
        return kind(task, settings, context)

    def silence(self, unanswered_s: float) -> float:
        """For how long the model's server has answered nobody, of the time for which a request was not answered."""
        answered = [load.since_answer_s for load in self._model.loads() if load.since_answer_s is not None]
        return min((unanswered_s, *answered))

    def end_session(self, order: Order) -> None:
        """An attempt is over: its calls of the model belong together no more."""
        self._model.end_session(session_of(order.key))

    def agent(self, order: Order, env: Env, tools: Sequence[Tool], log: AttemptWriter) -> Agent:
        """The agent of one attempt."""
        kind, settings = self._kind(order.task.env)
        spec = kind.desktop_spec(order.task, settings)

        def decode(call: ToolRequest) -> Sequence[Action]:
            with boundary(FailureClass.ENV, "the environment"):  # an ActionError is the agent's, and says so
                return env.decode(call)

        context = AgentContext(
            model=self._bound(order),
            tools=tools,
            decode=decode,
            log=log,
            task=order.task,
            sample=order.key.sample,
            model_name=self.model_name,
            screen=None if spec is None else (spec.width, spec.height),
            shown=None if spec is None else kind.picture_size(settings, spec),
        )
        return self._agent_kind(context, self._agent_settings)

    def _bound(self, order: Order) -> Model:
        settings, model = self.spec.model, self._model
        call = call_of(order.key, over(settings.sampling, order.sampling))
        return BoundModel(model, call, exact=settings.exact and not model.checks_exact)

    def _kind(self, env: str) -> tuple[type[Env], object]:
        """The kind of environment of a task that names this one, or none, with its settings."""
        name, options = self.spec.of_task(env)
        if name not in self._envs:
            kind = env_kind(name)
            self._envs[name] = (kind, env_settings(kind, options, name))
        return self._envs[name]


def _with_key(settings: ModelSettings, key: str) -> ModelSettings:
    """A model's settings with its key."""
    return settings.model_copy(update={"api_key": SecretStr(key) if key else None})


def _check_files(plug_ins: Mapping[str, str]) -> None:
    """A process that starts late must not run other code than the first ones did."""
    for name, digest in plug_ins.items():
        if file_digest(name) != digest:
            file = name.rpartition(":")[0]
            raise InputError(f"{file} has changed since the run began; undo that and resume it, or start a new run")


async def _check_place(place: str) -> None:
    """That attempts go where the run's journal is: else what was done could not be found again."""
    storage = Storage.at(place)
    found = storage.exists(paths.RUN_JSON) if storage.local else await asyncio.to_thread(storage.exists, paths.RUN_JSON)
    if not found:
        raise StoreError(
            f"{storage.shown()} holds no {paths.RUN_JSON}: the run's journal lies elsewhere, and its attempts would be "
            "lost. Is it a folder that every process of the run sees under this name?"
        )
