"""Session: one start of a run, put together: store, pool, model, backend, engine, watchdog, control.

Guarantees: whatever ends it, no desktop, worker or socket of its own is left, and what was done can be resumed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec

from deskroll import __version__
from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.pool import Pool, PoolConfig, PoolStatus
from deskroll.desktops.providers import make_provider
from deskroll.desktops.service import Listen, PoolClient, PoolService
from deskroll.errors import DeskrollError, InputError, StoreError
from deskroll.rollout.backends import Backend
from deskroll.rollout.backends.inline import InlineBackend
from deskroll.rollout.backends.process import ProcessBackend, ProcessConfig
from deskroll.rollout.config import RunConfig, differences
from deskroll.rollout.control import Steering, serve_control, socket_path
from deskroll.rollout.engine import Engine
from deskroll.rollout.limits import Limits
from deskroll.rollout.loading import PHASE, desktop_specs
from deskroll.rollout.orders import EpisodeLimits, RunSpec
from deskroll.rollout.plan import changed_tasks, failed_before, left_to_do
from deskroll.rollout.redaction import MASK, is_secret, redacted
from deskroll.rollout.retry import Retries
from deskroll.rollout.status import RunStatus, WorkerStatus, activities_of, attention, endpoints_of, what_limits
from deskroll.rollout.watchdog import Watchdog
from deskroll.store import Run, RunInfo, RunStore, config_digest, join
from deskroll.store.journal import DesktopChanged
from deskroll.types import Episode, EpisodeKey, Event, EventSink, Task, guarded

_log = logging.getLogger(__name__)
_MOST_SHOWN = 200


class Session:
    """A run that is open; made by `Session.open`."""

    def __init__(
        self, config: RunConfig, tasks: Sequence[Task], store: RunStore, engine: Engine, backend: Backend
    ) -> None:
        self.config = config
        self.store = store
        self.engine = engine
        self._tasks = tasks
        self._backend = backend
        self._pool: Pool | PoolClient | None = None
        self._pool_status: PoolStatus | None = None
        self._started_at = time.time()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        config: RunConfig,
        tasks: Sequence[Task],
        *,
        resume: str = "",
        force: bool = False,
        sink: EventSink | None = None,
    ) -> AsyncIterator[Session]:
        """Open everything that a run needs, or that of the run at `resume`."""
        questions = {task.id: task.instruction for task in tasks}
        root = resume or _new_root(config)
        needed = desktop_specs(config, tasks)
        spec = _spec(config, root)
        journal = _Journal(guarded(sink))
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(
                _opened_store(config, tasks, root, questions, resume=bool(resume), force=force)
            )
            journal.store = store
            if not left_to_do(store.index, PHASE, 0, tasks, config.group_size):
                needed = []  # nothing is booted for nothing
            pool, address = await stack.enter_async_context(_opened_pool(config, needed, journal))
            spec = msgspec.structs.replace(spec, pool=address)
            backend = await stack.enter_async_context(_backend(config, spec, store, pool, journal))
            limits = Limits(config.num_rollouts, config.max_concurrent_rollouts, config.reserved)
            retries = Retries(**config.retries.model_dump())
            history = failed_before(store.index) if resume else None
            engine = Engine(backend, store, limits, retries, sink=journal, history=history)
            session = cls(config, tasks, store, engine, backend)
            session._pool = pool
            watchdog = Watchdog(backend, config, sink=journal)
            engine.on_ended = watchdog.usual.learn
            steering = Steering(status=session.status, change=limits.change, stop=session.stop)
            socket = await stack.enter_async_context(serve_control(steering, store.info.run_id, config.metrics))
            store.note(socket=socket)
            await stack.enter_async_context(_beside(watchdog.watch(), session._follow_pool()))
            yield session

    @property
    def folder(self) -> str:
        """Where the run is kept."""
        return self.store.storage.root

    async def run(self) -> list[Episode]:
        """Run what is planned and not done; all outcomes come back."""
        work = asyncio.ensure_future(self.engine.run(PHASE, self._tasks, samples=self.config.group_size))
        broken = asyncio.ensure_future(asyncio.shield(self.store.failed))
        try:
            await asyncio.wait((work, broken), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise broken.result()
            return await work
        finally:
            for task in (work, broken):
                task.cancel()
            await asyncio.gather(work, broken, return_exceptions=True)

    def stop(self, now: bool = False) -> None:
        """Start nothing more; `now`: end what runs, too."""
        if now:
            self.engine.stop_now()
        else:
            self.engine.stop()

    def status(self) -> RunStatus:
        """What it does at this moment."""
        workers = self._backend.workers()
        activities, endpoints = activities_of(workers), endpoints_of(workers)
        standing, limits = self.engine.tally.standing(), self.engine.limits
        phases = dict(Counter(str(each.phase) for each in activities))
        in_flight = len(self.engine.running)
        stuck = attention(activities, endpoints, workers, self.config.watchdog.notice_after)
        return RunStatus(
            run_id=self.store.info.run_id,
            folder=self.folder,
            pid=os.getpid(),
            epoch=self.store.epoch,
            started_at=self._started_at,
            at=time.time(),
            stopping=self.engine.stopping,
            standing=standing,
            in_flight=in_flight,
            waiting=limits.episodes.waiting,
            samples=self.config.group_size,
            num_rollouts=limits.episodes.most,
            max_concurrent_rollouts=limits.groups.most,
            phases=phases,
            activities=tuple(activities[:_MOST_SHOWN]),
            endpoints=tuple(endpoints),
            workers=tuple(
                WorkerStatus(
                    name=each.name,
                    pid=each.pid,
                    running=each.vitals.running,
                    rss_mb=each.rss_mb,
                    silent_s=each.silent_s,
                    isolated=each.isolated,
                )
                for each in workers
            ),
            pool=self._pool_status,
            attention=tuple(stuck),
            limit=what_limits(standing, in_flight, limits.episodes.most, phases, self._pool_status, endpoints),
        )

    async def _follow_pool(self) -> None:
        """Keep the pool's status at hand."""
        while self._pool is not None:
            try:
                self._pool_status = await self._pool.status()
            except DeskrollError as error:
                _log.warning("the pool's status cannot be had: %s", error)
            await asyncio.sleep(0.5)


class _Journal:
    """Passes events on, and writes what desktops do to the run's journal."""

    def __init__(self, sink: EventSink) -> None:
        self.store: RunStore | None = None
        self._sink = sink
        self._since: dict[str, float] = {}

    def emit(self, event: Event) -> None:
        if event.kind == "desktop.state" and self.store is not None and not self.store.failed.done():
            data = event.data
            before = self._since.get(event.subject, event.at)
            self._since[event.subject] = event.at
            if data["state"] == "gone":
                del self._since[event.subject]
            self.store.write(
                DesktopChanged(
                    desktop=event.subject,
                    state=data["state"],
                    at=event.at,
                    lease=data.get("lease", ""),
                    holder=data.get("group") or data.get("client", ""),
                    seconds=round(event.at - before, 3),
                )
            )
        self._sink.emit(event)


def _new_root(config: RunConfig) -> str:
    """Where a new run is kept: under the name that was chosen, or under one that nobody else has."""
    if config.run_id:
        return join(config.output_dir, config.run_id)
    name = time.strftime("%Y%m%d-%H%M%S")
    if "://" in config.output_dir:
        return join(config.output_dir, f"{name}-{secrets.token_hex(2)}")
    for n in range(1, 1000):
        root = Path(join(config.output_dir, name if n == 1 else f"{name}-{n}"))
        try:
            root.parent.mkdir(parents=True, exist_ok=True)
            root.mkdir()
        except FileExistsError:
            if root.exists():
                continue
            break  # a part of the path is something else: whoever opens the store says what
        except OSError:
            break
        return str(root)
    else:
        raise StoreError(f"{config.output_dir} holds a thousand runs of {name}; choose a name with --set run_id=...")
    return join(config.output_dir, name)


def _workers(config: RunConfig) -> int:
    """How many worker processes there are: no more than requests may be open at a time."""
    workers = config.workers or os.cpu_count() or 1
    return min(workers, config.model.max_in_flight or workers)


def _spec(config: RunConfig, root: str) -> RunSpec:
    model = config.model.model_dump(mode="json")
    model.pop("api_key")
    if config.model.max_in_flight is not None and config.backend == "process":
        # Each worker has a client of its own; together they have no more than this.
        model["max_in_flight"] = max(1, config.model.max_in_flight // _workers(config))
    storage = root if "://" in root else str(Path(root).absolute())
    return RunSpec(
        env=config.env,
        agent=config.agent,
        model=model,
        storage=storage,
        env_options=config.env_options,
        agent_options=config.agent_options,
        limits=EpisodeLimits(**config.limits.model_dump()),
    )


def _resolved(config: RunConfig) -> dict[str, object]:
    """The settings as run.json keeps them; the key is not among them."""
    return redacted(config.model_dump(mode="json", exclude={"model": {"api_key"}}))


@asynccontextmanager
async def _opened_store(
    config: RunConfig, tasks: Sequence[Task], root: str, questions: dict[str, str], *, resume: bool, force: bool
) -> AsyncIterator[RunStore]:
    def describe(key: EpisodeKey) -> str:
        return questions.get(key.task, "")

    if not resume:
        resolved = _resolved(config)
        info = RunInfo(
            run_id=root.rstrip("/").rpartition("/")[2],
            version=__version__,
            config=resolved,
            config_digest=config_digest(resolved),
            command=tuple(_without_secrets(sys.argv)),
            git_commit=await asyncio.to_thread(_git_commit),
        )
        async with RunStore.create(root, info, describe=describe) as store:
            yield store
        return
    _refuse_changes(config, tasks, root, force=force)
    async with RunStore.resume(root, describe=describe) as store:
        yield store


def _refuse_changes(config: RunConfig, tasks: Sequence[Task], root: str, *, force: bool) -> None:
    """Before anything is written: a run that cannot go on as it was begun stays as it is."""
    run = Run.open(root)
    changed = [*differences(run.info.config, _resolved(config)), *changed_tasks(run.index, PHASE, 0, tasks)]
    if changed and not force:
        shown = "\n  ".join(changed[:10]) + (f"\n  ... and {len(changed) - 10} more" if len(changed) > 10 else "")
        raise InputError(
            f"run {run.info.run_id} cannot go on as it was begun:\n  {shown}\n"
            f"start a new run, or go on all the same with --force"
        )


def _git_commit() -> str:
    """The commit of deskroll's own sources, where they are a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""


def _without_secrets(command: Sequence[str]) -> list[str]:
    return [MASK if "api_key" in each or is_secret(each) else each for each in command]


@asynccontextmanager
async def _opened_pool(
    config: RunConfig, needed: list[DesktopSpec], sink: EventSink
) -> AsyncIterator[tuple[Pool | PoolClient | None, str]]:
    """The pool that the run uses, and where workers reach it."""
    if not needed:
        yield None, ""
    elif config.pool:
        async with PoolClient(config.pool) as client:
            await client.status()
            yield client, config.pool
    else:
        name = "local" if config.provider == "auto" else config.provider
        settings = PoolConfig(
            num_vms=config.num_vms,
            min_vms=config.min_vms,
            spec=needed[0],
            resource_timeout=config.resource_timeout,
        )
        provider = make_provider(name, config.provider_options, sink)
        for spec in needed[1:]:
            provider.check_spec(spec)
        socket = socket_path(secrets.token_hex(3), "pool")
        async with Pool(provider, settings, sink=sink) as pool, PoolService(pool, Listen.parse(f"unix:{socket}")):
            yield pool, f"unix:{socket}"


@asynccontextmanager
async def _backend(
    config: RunConfig, spec: RunSpec, store: RunStore, pool: Pool | PoolClient | None, sink: EventSink
) -> AsyncIterator[Backend]:
    key = config.model.api_key.get_secret_value() if config.model.api_key else ""
    if config.backend == "inline":
        async with InlineBackend(spec, api_key=key, leases=pool, sink=sink) as inline:
            yield inline
        return
    processes = ProcessConfig(workers=_workers(config), memory_mb=config.worker_memory_mb, hang_after=config.hang_after)
    keep = (store.lock_fd,) if store.lock_fd is not None else ()
    async with ProcessBackend(spec, processes, api_key=key, keep=keep, sink=sink) as backend:
        yield backend


@asynccontextmanager
async def _beside(*work: Coroutine[object, object, None]) -> AsyncIterator[None]:
    """Run what goes on beside the block, and end it with the block."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                _log.error("what watches over the run ended: %s: %s", type(error).__name__, error)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
