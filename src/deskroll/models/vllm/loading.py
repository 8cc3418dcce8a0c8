"""Loader: which weights one server of a pool has, and how it gets others: in place, or as an adapter beside them.

Guarantees: a request is granted only under the version that answers it: with `drain` nothing is open when weights
change, with `keep` and `abort` nothing new is granted until they have; an adapter has a name of its own, so nothing is
paused for it, and what open requests ask for, or somebody has pinned, stays loaded, also in the server after this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from deskroll.errors import DeskrollError, ModelError
from deskroll.models.router.router import Router
from deskroll.models.vllm.config import ModelPoolConfig
from deskroll.models.weights.adapters import adapter_name, adapters_to_unload, load_adapter, unload_adapter
from deskroll.models.weights.checkpoint import Checkpoint, CheckpointKind
from deskroll.models.weights.digest import tensors_digest
from deskroll.models.weights.proof import Control, Proof, said
from deskroll.models.weights.refresh import RefreshFailed, RefreshMode, RefreshStep, refresh
from deskroll.models.weights.refusal import CheckpointRefused


class Has(Protocol):
    """What has HTTP to a server."""

    @property
    def control(self) -> Control:
        """It."""


BASE = "0"
"""The version of what adapters are on, which has none of its own."""


def version_text(checkpoint: Checkpoint, *, adapters: bool) -> str:
    """A version as tickets have it; empty: none. `adapters`: whether it is one, or what they are on."""
    return str(checkpoint.version) if checkpoint.version >= 0 else BASE if adapters else ""


def names_offered(config: ModelPoolConfig, versions: Iterable[int]) -> dict[str, str]:
    """By which names a server with these adapters can be asked, each with its version; none without enable_lora."""
    name = config.served_name
    adapters = {adapter_name(name, version): str(version) for version in versions}
    return {name: BASE} | adapters if config.enable_lora else {}


class Loader:
    """Of one server."""

    def __init__(
        self, config: ModelPoolConfig, router: Router, checkpoint: Checkpoint, tell: Callable[[str], None],
        before: Mapping[int, Checkpoint] | None = None,
    ) -> None:  # fmt: skip
        """`checkpoint`: what it is to have when it has begun; `before`: adapters of the server before it."""
        self.holds = checkpoint
        self._tell = tell
        self._before = before or {}
        self._config = config
        self._router = router
        self._url = ""
        self._server: Has | None = None
        self._proof: Proof | None = None
        self.adapters: dict[int, Checkpoint] = {}
        """Those that are loaded, by version."""
        self._digests: dict[int, str] = {}
        """Of their tensors when they were loaded."""

    @property
    def folder(self) -> Path:
        """What the server is started on."""
        return self.holds.path if self.holds.kind is CheckpointKind.FULL else Path(self._config.ckpt_path)

    @property
    def model(self) -> str:
        """The name to ask for."""
        return self._name(self.holds.version) if self.holds.version in self.adapters else self._config.served_name

    @property
    def version(self) -> str:
        """What answers."""
        return version_text(self.holds, adapters=self._config.enable_lora)

    async def begin(self, server: Has, url: str, proof: Proof) -> None:
        """The server is started; it gets its adapter, where there is one."""
        self._server, self._url, self._proof = server, url, proof
        if self._config.enable_lora:
            await self._load_pinned()
            await self._load(self.holds, None)

    async def catch_up(self, checkpoint: Checkpoint) -> None:
        """Get other weights before anything was granted."""
        if self._config.enable_lora:
            if await self._is_another(checkpoint):
                await self._take_out(checkpoint.version, lambda: False)
            await self._load(checkpoint, None)
        else:
            await self._reload(checkpoint, RefreshMode.DRAIN, lambda: False)
        self.holds = checkpoint

    async def renew(self, checkpoint: Checkpoint, is_there: Callable[[], bool]) -> None:
        """Get other weights while requests go on; `is_there`: whether the router still knows the server."""
        if self._config.enable_lora:
            if replaced := await self._is_another(checkpoint):
                await self._take_out(checkpoint.version, is_there)
            try:
                await self._load(checkpoint, await self._unlike(checkpoint))
            except RefreshFailed as failed:
                raise RefreshFailed(str(failed), RefreshStep.RELOAD) if replaced else failed from failed.__cause__
            self.holds = checkpoint
            if is_there() and replaced:
                self._router.ready(self._url, model=self.model, version=self.version)
            elif is_there():
                self._router.serve(self._url, self.version, self.model)
            await self._unload(is_there)
            return
        if not is_there():
            return
        if self._config.refresh is RefreshMode.DRAIN:
            await self._router.drain(self._url)
        await self._reload(checkpoint, self._config.refresh, is_there)
        self.holds = checkpoint
        if is_there():
            self._router.ready(self._url, model=self.model, version=self.version)

    def must_restart(self, failed: DeskrollError) -> bool:
        """Whether its server is of no use any more: all but one that did not take an adapter, and serves as before."""
        return not (self._config.enable_lora and isinstance(failed, RefreshFailed) and not failed.touched)

    async def _reload(self, checkpoint: Checkpoint, mode: RefreshMode, is_there: Callable[[], bool]) -> None:
        def hold() -> None:
            if is_there():
                self._router.hold(self._url)

        def tell() -> None:  # an open request that ends from now on has an end by these weights
            if is_there():
                self._router.serve(self._url, version_text(checkpoint, adapters=False))

        try:
            await refresh(self._control, checkpoint, mode, model=self._config.served_name, pausing=hold, changed=tell)
        except RefreshFailed as failed:
            # Asked only now: it reads all of both.
            if failed.step is not RefreshStep.PROVE or not await _are_same(self.holds, checkpoint):
                raise

    async def _load(self, checkpoint: Checkpoint, unlike: Proof | None) -> None:
        name = self._config.served_name
        if checkpoint.kind is CheckpointKind.FULL or checkpoint.version in self.adapters:
            return  # somebody goes back to what is there still
        self._proof = await load_adapter(self._control, checkpoint, name, unlike=unlike)
        await self._note_loaded(checkpoint)

    async def _note_loaded(self, checkpoint: Checkpoint) -> None:
        self.adapters[checkpoint.version] = checkpoint
        self._digests[checkpoint.version] = await _digest(checkpoint)

    async def _is_another(self, checkpoint: Checkpoint) -> bool:
        """Whether the adapter of that version that is loaded is not this one: an earlier training run's."""
        if checkpoint.version not in self.adapters:
            return False
        digest = await _digest(checkpoint)
        return not digest or digest != self._digests[checkpoint.version]

    async def _take_out(self, version: int, is_there: Callable[[], bool]) -> None:
        """Unload an adapter whose name another one gets: once nothing is open, and nothing that it computed is kept."""
        if is_there():
            await self._router.drain(self._url)
        del self.adapters[version], self._digests[version]
        if is_there():
            self.offer()
        await unload_adapter(self._control, self._name(version))
        status, answer = await self._control.post("/reset_prefix_cache")
        if status != 200:
            raise ModelError(f"/reset_prefix_cache answered {status}: {said(answer)}")

    async def _load_pinned(self) -> None:
        """What the server before this one had, and somebody still wants."""
        for version, checkpoint in self.wanted().items():
            if version == self.holds.version:
                continue  # it has that, or another one by the same name
            try:
                await load_adapter(self._control, checkpoint, self._config.served_name, unlike=None)
            except RefreshFailed as failed:  # no reason to serve nothing at all
                self._tell(f"version {version} is pinned, and is not served any more: {failed}")
            else:
                await self._note_loaded(checkpoint)

    async def _unlike(self, checkpoint: Checkpoint) -> Proof | None:
        if self.holds.kind is not CheckpointKind.ADAPTER:
            return None
        return None if await _are_same(self.holds, checkpoint) else self._proof

    def wanted(self) -> dict[int, Checkpoint]:
        """Adapters that it has, or should have, and somebody wants: for the server after this one."""
        asked = self._router.models_asked(self._url)
        had = {**self._before, **self.adapters}
        return {version: checkpoint for version, checkpoint in had.items() if self._name(version) in asked}

    def offer(self) -> None:
        """Tell the router by which names its server can be asked; none, where there are no adapters."""
        if self._config.enable_lora:
            self._router.offer(self._url, names_offered(self._config, self.adapters))

    async def _unload(self, is_there: Callable[[], bool]) -> None:
        asked = self._router.models_asked(self._url)
        used = {version for version in self.adapters if self._name(version) in asked or version == self.holds.version}
        old = adapters_to_unload(self.adapters, used)
        for version in old:
            del self.adapters[version], self._digests[version]
        if is_there():
            self.offer()  # before they go: nobody asks for them from now on
        for version in old:
            await unload_adapter(self._control, self._name(version))

    def _name(self, version: int) -> str:
        return adapter_name(self._config.served_name, version)

    @property
    def _control(self) -> Control:
        if self._server is None:
            raise ModelError("the model server has not begun")
        return self._server.control


async def _digest(checkpoint: Checkpoint) -> str:
    """Of its tensors; empty where it is gone by now: nobody can say then what was in it."""
    try:
        return await asyncio.to_thread(tensors_digest, checkpoint)
    except CheckpointRefused:
        return ""


async def _are_same(one: Checkpoint, other: Checkpoint) -> bool:
    digests = [await _digest(each) for each in (one, other)]
    return digests[0] == digests[1] != ""
