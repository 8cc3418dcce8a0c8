"""The parts of a session that are opened and closed with it: the pool that its episodes use, and the backend."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.pool import Pool, PoolConfig
from deskroll.desktops.providers import make_provider
from deskroll.desktops.service import Listen, PoolClient, PoolService
from deskroll.events import EventSink
from deskroll.models.settings import ModelSettings
from deskroll.rollout.backends import Backend
from deskroll.rollout.backends.inline import InlineBackend
from deskroll.rollout.backends.process import ProcessBackend, ProcessConfig
from deskroll.rollout.config import FREE_LIMITS, RunConfig
from deskroll.rollout.control import socket_path
from deskroll.rollout.loading import plug_ins
from deskroll.rollout.orders import EpisodeLimits, Keys, RunSpec
from deskroll.store import RunStore
from deskroll.tasks import tasks_folder

_LONGER_S = 60.0


def _workers(config: RunConfig) -> int:
    """How many worker processes there are: no more than requests may be open at a time."""
    workers = config.workers or os.cpu_count() or 1
    return min(workers, config.model.max_in_flight or workers)


def run_spec(config: RunConfig, storage: str) -> RunSpec:
    """What every episode of the run has in common; `storage` is where its journal is."""
    return RunSpec(
        env=config.env,
        agent=config.agent,
        model=_model(config, config.model),
        judge=None if config.judge is None else _model(config, config.judge),
        storage=storage,
        folder=str(tasks_folder(config.tasks)),
        env_options=config.env_options,
        agent_options=config.agent_options,
        plug_ins=plug_ins(config),
        evaluate=config.evaluate,
        pool_wait=pool_wait(config),
        notice_after=config.watchdog.notice_after,
        events=config.events.enabled,
        limits=EpisodeLimits(**config.limits.model_dump(exclude=set(FREE_LIMITS))),
    )


def pool_wait(config: RunConfig) -> float:
    """How long an attempt waits for a pool that serves nobody: longer than the run does, which stops then."""
    return config.pool_wait + _LONGER_S


def _model(config: RunConfig, settings: ModelSettings) -> dict[str, Any]:
    """A model's settings, for one worker, without its key."""
    dumped = settings.model_dump(mode="json", exclude={"api_key"})
    if settings.max_in_flight is not None and config.backend == "process":
        # Each worker has a client of its own; together they have no more than this.
        dumped["max_in_flight"] = max(1, settings.max_in_flight // _workers(config))
    return dumped


def _key(settings: ModelSettings | None) -> str:
    return settings.api_key.get_secret_value() if settings is not None and settings.api_key else ""


def model_keys(config: RunConfig) -> Keys:
    """The keys of the run's models."""
    return Keys(model=_key(config.model), judge=_key(config.judge))


@asynccontextmanager
async def opened_pool(
    config: RunConfig, leases: Counter[DesktopSpec], spec: RunSpec, sink: EventSink
) -> AsyncIterator[tuple[Pool | PoolClient | None, RunSpec]]:
    """The pool that the run uses, told how many leases it comes to, and the spec with where workers reach it."""
    if not leases:
        yield None, spec
    elif config.pool:
        plan = f"run-{secrets.token_hex(6)}"
        async with PoolClient(config.pool, wait=pool_wait(config), plan=plan) as client:
            await client.status()
            await client.expect(leases)
            yield client, msgspec.structs.replace(spec, pool=config.pool, plan=plan)
    else:
        wanted = [kind for kind, _ in leases.most_common()]
        settings = PoolConfig(
            num_vms=config.num_vms,
            min_vms=config.min_vms,
            spec=wanted[0],
            resource_timeout=config.resource_timeout,
        )
        provider = make_provider(config.provider, config.provider_options, sink)
        for kind in wanted[1:]:
            provider.check_spec(kind)
        at = f"unix:{socket_path(secrets.token_hex(3), 'pool')}"
        async with Pool(provider, settings, sink=sink, expected=leases) as pool, PoolService(pool, Listen.parse(at)):
            yield pool, msgspec.structs.replace(spec, pool=at)


@asynccontextmanager
async def opened_backend(
    config: RunConfig, spec: RunSpec, store: RunStore, pool: Pool | PoolClient | None, sink: EventSink
) -> AsyncIterator[Backend]:
    """Where episodes run."""
    keys = model_keys(config)
    if config.backend == "inline":
        async with InlineBackend(spec, keys, leases=pool, sink=sink) as inline:
            yield inline
        return
    processes = ProcessConfig(workers=_workers(config), memory_mb=config.worker_memory_mb, hang_after=config.hang_after)
    keep = (store.lock_fd,) if store.lock_fd is not None else ()
    async with ProcessBackend(spec, processes, keys=keys, keep=keep, sink=sink) as backend:
        yield backend
