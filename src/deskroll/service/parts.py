"""ServiceParts: what a service holds beside its runtime: its folder, its ledger of batches, its source, its models."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from deskroll.errors import InputError, StoreError
from deskroll.models.settings import ModelSettings
from deskroll.models.vllm.pool import ModelServicePool
from deskroll.rollout.folder import holds_runtime, new_root, open_store
from deskroll.rollout.models import Models
from deskroll.rollout.run_budget import RunBudget
from deskroll.service.config import OF_ONE_LIST, ServiceConfig
from deskroll.service.ledger import BatchLedger
from deskroll.store import RunStore, paths
from deskroll.store.local import LocalStorage
from deskroll.tasks.batches import Source, SourceSettings, TaskLoader, open_source
from deskroll.tasks.batches_file import FileSource


@dataclass(frozen=True)
class ServiceParts:
    """What a service needs."""

    config: ServiceConfig
    """Its settings, with the model that is served where it has servers of its own."""
    store: RunStore
    ledger: BatchLedger
    loader: TaskLoader
    pool: ModelServicePool | None
    models: Models
    """That answered, but for its own servers, which are only being started."""
    folder: str
    """Where the files are that tasks name."""
    budget: RunBudget
    """What it may use up, over all of its starts."""


@asynccontextmanager
async def open_parts(config: ServiceConfig) -> AsyncIterator[ServiceParts]:
    """Open all of it, for the length of the block; a source or a model that cannot be asked leaves nothing behind."""
    async with AsyncExitStack() as stack:
        first = open_source(config.source, Path())  # before anything is written
        if isinstance(first, FileSource) and not holds_runtime(new_root(config)):
            first.check_there()
        models = Models()
        if config.models is None:
            await stack.enter_async_context(models)
            await models.answering(config)
        try:
            settings = config.model_dump(mode="json", exclude={*OF_ONE_LIST})
            settings["source"]["at"] = config.source.shown  # whatever its query holds may be a secret
            store = await stack.enter_async_context(open_store(new_root(config), settings))
        except StoreError as error:  # a service that cannot begin is bad input
            raise InputError(str(error)) from error
        assert isinstance(store.storage, LocalStorage)  # noqa: S101  (its settings say so)
        budget = RunBudget(config.limits, store.index)  # while the index still has all records
        ledger = stack.enter_context(BatchLedger(store.storage))
        aside = Path(store.storage.path(paths.BAD))
        source = open_source(config.source, aside, ledger.last.id if ledger.last else "")
        loader = await stack.enter_async_context(TaskLoader(source, ledger.knows))
        pool = await _open_pool(config, stack)
        if pool is not None:
            await stack.enter_async_context(models)  # which are let go before their servers are
        folder = _folder_of(config.source, source, stack)
        yield ServiceParts(_with_pool(config, pool), store, ledger, loader, pool, models, folder, budget)


async def _open_pool(config: ServiceConfig, stack: AsyncExitStack) -> ModelServicePool | None:
    """Model servers of its own."""
    if config.models is None:
        return None
    return await stack.enter_async_context(ModelServicePool(config.models))


def _with_pool(config: ServiceConfig, pool: ModelServicePool | None) -> ServiceConfig:
    if pool is None:
        return config
    asked = config.model.model_dump(exclude_unset=True) | {"name": pool.config.served_name, "pool": pool.address}
    return config.model_copy(update={"model": ModelSettings.model_validate(asked)})


def _folder_of(settings: SourceSettings, source: Source, stack: AsyncExitStack) -> str:
    """Where the files are that tasks name: beside them; those of an address name none but below its root."""
    if source.folder is not None:
        return str(source.folder)
    if settings.root:
        return str(Path(settings.root).absolute())
    return stack.enter_context(tempfile.TemporaryDirectory(prefix="deskroll-no-files-"))
