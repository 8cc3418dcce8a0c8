"""EpisodeContext: what a process runs episodes with: kinds of environment and agent, the model, the pool, the store.

Opened once a process, shared by all of its episodes. Guarantees: a desktop that it hands out goes back to its pool,
however the episode ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol

from deskroll.actions import Action
from deskroll.agents import Agent, AgentContext, agent_kind, agent_settings, dialect_of, model_protocol, reads_tree
from deskroll.config import check
from deskroll.desktops.base import Desktop, DesktopSpec
from deskroll.desktops.lease import Lease
from deskroll.desktops.service import PoolClient
from deskroll.envs import Env, EnvContext, EnvKind, env_kind, env_settings
from deskroll.errors import DeskrollError, FailureClass, InputError, NoDesktop, StoreError, boundary, foreign_code
from deskroll.events import EventSink, guarded
from deskroll.importing import file_digest
from deskroll.models.base import EndpointLoad, Model
from deskroll.models.client import ModelClient
from deskroll.models.settings import ModelSettings
from deskroll.rollout.bound_model import BoundModel, NotedModel, Notes, call_of
from deskroll.rollout.live_attempt import LiveAttempt
from deskroll.rollout.orders import Keys, Order, RunSpec
from deskroll.rollout.traces import Traces
from deskroll.store import AttemptWriter, Storage, paths
from deskroll.types import Stage, Tool, ToolRequest


class Leases(Protocol):
    """Whoever hands out desktops: a pool in this process, or a client of one elsewhere."""

    def lease(
        self, spec: DesktopSpec | None = None, *, priority: int = 0, group: str = "", timeout: float | None = None
    ) -> AbstractAsyncContextManager[Lease]:
        """Wait for a desktop and hold it for the length of the block."""


class EpisodeContext:
    """Use with `async with EpisodeContext.open(...)`."""

    def __init__(
        self,
        spec: RunSpec,
        model: ModelClient,
        judge: ModelClient,
        leases: Leases | None,
        sink: EventSink | None = None,
    ) -> None:
        _check_files(spec)
        self.spec = spec
        self.sink = guarded(sink)
        self.storage = Storage.at(spec.storage)
        self.traces = Traces()
        """What is kept and told of exceptions in others' code."""
        self.model_name = "" if model_protocol(agent_kind(spec.agent)) == "none" else model.settings.name
        """The model that the agent asks; empty where it asks none."""
        self._model = model
        self._judge = judge
        self._leases = leases
        self._envs: dict[str, tuple[EnvKind, object]] = {}
        self._agent_kind = agent_kind(spec.agent)
        self._agent_settings = agent_settings(self._agent_kind, spec.agent_options, spec.agent)
        self._kind(spec.env)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        spec: RunSpec,
        keys: Keys,
        *,
        leases: Leases | None = None,
        sink: EventSink | None = None,
        show_traces: bool = False,
    ) -> AsyncIterator[EpisodeContext]:
        """Open what the spec names; `leases` where the pool is in this process."""
        await _check_place(spec)
        async with AsyncExitStack() as stack:
            settings = check(ModelSettings, {**spec.model, "api_key": keys.model or None}, "model")
            dialect = dialect_of(agent_kind(spec.agent))
            model = judge = await stack.enter_async_context(
                ModelClient(settings, dialect, sink=sink, silent_after=spec.notice_after)
            )
            if spec.judge is not None:
                settings = check(ModelSettings, {**spec.judge, "api_key": keys.judge or None}, "judge")
                judge = await stack.enter_async_context(
                    ModelClient(settings, sink=sink, silent_after=spec.notice_after)
                )
            if leases is None and spec.pool:
                leases = await stack.enter_async_context(PoolClient(spec.pool, wait=spec.pool_wait, plan=spec.plan))
            with foreign_code("the agent or the environment"):
                context = cls(spec, model, judge, leases, sink)
            context.traces = Traces.of_run(spec, keys, whole=show_traces)
            stack.push_async_callback(context.close_shared)
            yield context

    async def close_shared(self) -> None:
        """End what environments share among the attempts of this process."""
        for kind, _ in self._envs.values():
            if (close := getattr(kind, "close_shared", None)) is not None:
                await close()

    def endpoints(self) -> tuple[EndpointLoad, ...]:
        """How the model's servers do."""
        own = self._judge is not self._model
        return (self._model.load(), self._judge.load()) if own else (self._model.load(),)

    @asynccontextmanager
    async def desktop(self, live: LiveAttempt) -> AsyncIterator[Desktop | None]:
        """A desktop for the length of the block, where the task needs one."""
        order = live.order
        kind, settings = self._kind(order.task.env or self.spec.env)
        spec = kind.desktop_spec(order.task, settings)
        if spec is None:
            yield None
            return
        if self._leases is None:
            raise NoDesktop(f"task {order.task.id!r} needs a desktop, and this run has no pool")
        live.enter(Stage.DESKTOP)
        group = f"{order.key.phase}/{order.key.round}/{order.key.task}"
        async with self._leases.lease(spec, priority=order.priority, group=group) as lease:
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
        kind, settings = self._kind(task.env or self.spec.env)
        context = EnvContext(
            desktop=desktop,
            model=NotedModel(self._bound(order), notes, "asked.json"),
            judge=NotedModel(self._judge, notes, "judged.json"),
            raw_tree=reads_tree(self._agent_kind),
            keep=notes.keep,
            folder=Path(self.spec.folder),
        )
        return kind(task, settings, context)

    def silence(self, unanswered_s: float) -> float:
        """For how long the model's server has answered nobody, of the time for which a request was not answered."""
        since = self._model.load().since_answer_s
        return unanswered_s if since is None else min(unanswered_s, since)

    def agent(self, order: Order, env: Env, tools: Sequence[Tool], log: AttemptWriter) -> Agent:
        """The agent of one attempt."""
        kind, settings = self._kind(order.task.env or self.spec.env)
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
            shown=None if spec is None else _shown(settings, spec),
        )
        return self._agent_kind(context, self._agent_settings)

    def _bound(self, order: Order) -> Model:
        return BoundModel(self._model, call_of(order.key, self._model.settings.sampling))

    def _kind(self, name: str) -> tuple[EnvKind, object]:
        if name not in self._envs:
            kind = env_kind(name)
            # The options are those of the run's own environment; a task of another kind has that kind's defaults.
            options = self.spec.env_options if name == self.spec.env else {}
            self._envs[name] = (kind, env_settings(kind, options, name))
        return self._envs[name]


def _check_files(spec: RunSpec) -> None:
    """A process that starts late must not run other code than the first ones did."""
    for name, digest in spec.plug_ins.items():
        if file_digest(name) != digest:
            file = name.rpartition(":")[0]
            raise InputError(f"{file} has changed since the run began; undo that and resume it, or start a new run")


async def _check_place(spec: RunSpec) -> None:
    """That attempts go where the run's journal is: else what was done could not be found again."""
    storage = Storage.at(spec.storage)
    found = storage.exists(paths.RUN_JSON) if storage.local else await asyncio.to_thread(storage.exists, paths.RUN_JSON)
    if not found:
        raise StoreError(
            f"{storage.shown()} holds no {paths.RUN_JSON}: the run's journal lies elsewhere, and its attempts would be "
            "lost. Is it a folder that every process of the run sees under this name?"
        )


def _shown(settings: object, spec: DesktopSpec) -> tuple[int, int]:
    """The size in which the environment shows the screen: that of its options, where it has such."""
    width, height = (getattr(settings, name, None) for name in ("image_width", "image_height"))
    return width or spec.width, height or spec.height
