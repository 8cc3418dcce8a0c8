"""Pools of scripted servers in this process, behind the interface that vLLM's have."""

from __future__ import annotations

import asyncio
from pathlib import Path

from deskroll.models.scripted import Script, ScriptedServer, Trouble, VllmSettings
from deskroll.models.vllm.config import ModelPoolConfig
from deskroll.models.vllm.control import ServerControl
from deskroll.models.vllm.pool import ModelServicePool
from deskroll.models.vllm.server import ServerDied
from deskroll.models.weights.proof import Proof, ask_proof


class ScriptedReplica:
    """A `ModelServer`."""

    def __init__(self, socket: Path, folder: Path, script: Script, trouble: Trouble) -> None:
        self.folder = folder
        self.socket = socket
        self.scripted = ScriptedServer(
            script, listen=f"unix:{socket}", vllm=VllmSettings(name="policy", weights=folder, trouble=trouble),
            keep_requests=True,
        )  # fmt: skip
        self.died: asyncio.Future[ServerDied] = asyncio.get_running_loop().create_future()
        self.control = ServerControl(socket)
        self.is_open = self.fails = self.hopeless = False
        self.may_start = asyncio.Event()
        self.may_start.set()

    @property
    def url(self) -> str:
        return f"unix:{self.socket}"

    @property
    def log(self) -> Path:
        return self.socket.with_suffix(".log")

    def reserve(self) -> None:
        """It has its place."""

    async def start(self) -> Proof:
        await self.may_start.wait()
        if self.fails:
            raise ServerDied("out of memory", hopeless=self.hopeless)
        await self.scripted.__aenter__()
        self.is_open = True
        await self.control.__aenter__()
        return await ask_proof(self.control, "policy")

    async def kill(self) -> None:
        """End it as a kill does: connections break, and it is told."""
        await self._close()
        if not self.died.done():
            self.died.set_result(ServerDied(f"model server {self.socket.name} was ended by signal 9"))

    async def stop(self) -> None:
        await self._close()

    async def _close(self) -> None:
        if self.is_open:
            self.is_open = False
            await self.control.__aexit__()
            await self.scripted.__aexit__()


class ScriptedServers:
    """Starts them, and keeps them by the order in which they were started."""

    def __init__(
        self,
        folder: Path,
        latency: float | tuple[float, float] = 0.0,
        fail_starts: int = 0,
        script: Script | None = None,
    ) -> None:
        self.started: list[ScriptedReplica] = []
        self.trouble = Trouble()
        self.fail_starts = fail_starts
        self.hopeless = self.are_held = False
        """Whether a start that fails always will; whether those that are made from now on wait until they may start."""
        self.unfit: set[str] = set()
        """Names of folders on which none starts."""
        self._folder = folder
        fine = {"latency": latency, "replies": [{"turns": [{"text": "a fine day it is"}]}]}
        self._script = script or Script.parse(fine)

    def __call__(self, number: int, folder: Path) -> ScriptedReplica:
        socket = self._folder / f"s{len(self.started)}"
        self.started.append(ScriptedReplica(socket, folder, self._script, self.trouble))
        made = self.started[-1]
        made.fails = len(self.started) <= self.fail_starts or folder.name in self.unfit
        made.hopeless = self.hopeless
        if self.are_held:
            made.may_start.clear()
        return made

    @property
    def open(self) -> list[ScriptedReplica]:
        return [each for each in self.started if each.is_open]


def scripted_pool(servers: ScriptedServers, ckpt: Path, told: list[str], **fields: object) -> ModelServicePool:
    config = ModelPoolConfig.model_validate({"ckpt_path": str(ckpt), "gpus": "none", **fields})
    return ModelServicePool(config, make=servers, tell=told.append)
