"""The parts of a session that are opened and closed with it: the pool that its episodes use, and the backend."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.pool import Pool, PoolConfig
from deskroll.desktops.providers import make_provider
from deskroll.desktops.service import Listen, PoolClient, PoolService
from deskroll.rollout.backends import Backend
from deskroll.rollout.backends.inline import InlineBackend
from deskroll.rollout.backends.process import ProcessBackend, ProcessConfig
from deskroll.rollout.config import RunConfig
from deskroll.rollout.control import socket_path
from deskroll.rollout.orders import EpisodeLimits, RunSpec
from deskroll.store import RunStore
from deskroll.types import EventSink


def _workers(config: RunConfig) -> int:
    """How many worker processes there are: no more than requests may be open at a time."""
    workers = config.workers or os.cpu_count() or 1
    return min(workers, config.model.max_in_flight or workers)


def run_spec(config: RunConfig, root: str) -> RunSpec:
    """What every episode of the run has in common."""
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


@asynccontextmanager
async def opened_pool(
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
async def opened_backend(
    config: RunConfig, spec: RunSpec, store: RunStore, pool: Pool | PoolClient | None, sink: EventSink
) -> AsyncIterator[Backend]:
    """Where episodes run."""
    key = config.model.api_key.get_secret_value() if config.model.api_key else ""
    if config.backend == "inline":
        async with InlineBackend(spec, api_key=key, leases=pool, sink=sink) as inline:
            yield inline
        return
    processes = ProcessConfig(workers=_workers(config), memory_mb=config.worker_memory_mb, hang_after=config.hang_after)
    keep = (store.lock_fd,) if store.lock_fd is not None else ()
    async with ProcessBackend(spec, processes, api_key=key, keep=keep, sink=sink) as backend:
        yield backend
