"""Replica: one place in a pool: a server, and another one after it has died or could not be refreshed.

Guarantees: the router asks its server only while that answers with the weights that the pool wants
(`supply.served`); a server that ends, or of which nobody knows what is in it, is stopped whole before the next one is
started; after too many deaths, or one that another start would repeat, it is given up, and says why. A start that may
have failed for the weights' sake is no death.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from deskroll.clocks import running_time
from deskroll.errors import DeskrollError, ModelError
from deskroll.models.router.router import Router, Server
from deskroll.models.vllm.config import ModelPoolConfig
from deskroll.models.vllm.loading import Loader
from deskroll.models.vllm.server import ServerDied
from deskroll.models.vllm.status import ReplicaStatus
from deskroll.models.vllm.supply import Supply
from deskroll.models.weights.checkpoint import Checkpoint
from deskroll.models.weights.proof import Control, Proof
from deskroll.models.weights.refresh import RefreshMode


class ModelServer(Protocol):
    """One server, once; `VLLMServer` is one."""

    @property
    def url(self) -> str:
        """Where it is asked: unix:PATH; known once it is reserved."""

    @property
    def log(self) -> Path:
        """What it printed."""

    @property
    def control(self) -> Control:
        """HTTP to it, while it is started."""

    @property
    def died(self) -> asyncio.Future[ServerDied]:
        """Done once it has ended by itself."""

    def reserve(self) -> None:
        """Take its place."""

    async def start(self) -> Proof:
        """Return once it is warmed up; raises `ServerDied`."""

    async def stop(self) -> None:
        """End all of it, started or not."""


Starter = Callable[[int, Path], ModelServer]
"""Makes a server that is not started yet: its number in the pool, and the folder with its weights."""


class ReplicaState(enum.StrEnum):
    """How a replica stands."""

    STARTING = "starting"
    UP = "up"
    GIVEN_UP = "given up"
    REMOVED = "removed"


class Replica:
    """`run` it in a task; cancelled, it leaves nothing."""

    def __init__(
        self,
        number: int,
        config: ModelPoolConfig,
        supply: Supply,
        router: Router,
        make: Starter,
        tell: Callable[[str], None],
    ) -> None:
        self.number = number
        self.state = ReplicaState.STARTING
        self.last_error = ""
        self._config = config
        self._supply = supply
        self._router = router
        self._make = make
        self._tell = tell
        self._server: ModelServer | None = None
        self._loader: Loader | None = None
        self._had: Mapping[int, Checkpoint] = {}
        """Adapters of the server before this one that somebody wants."""
        self._broken: asyncio.Future[DeskrollError] | None = None
        """Done when its server must be replaced, with the reason; that is no death of its own."""
        self._trying: Checkpoint | None = None
        """What its server is to come up with; None: it is up."""
        self._deaths: deque[float] = deque()
        self._died = 0
        self._changed = asyncio.Condition()

    @property
    def url(self) -> str:
        """That of its server; empty where there is none."""
        return "" if self._server is None else self._server.url

    def status(self) -> ReplicaStatus:
        """How it stands."""
        return ReplicaStatus(
            number=self.number, url=self.url, state=self.state, deaths=self._died, last_error=self.last_error,
            log="" if self._server is None else str(self._server.log),
        )  # fmt: skip

    async def run(self) -> None:
        """Have a server with the weights that are wanted, until it is given up."""
        try:
            await self._run()
        except Exception as error:  # whoever waits for it is told, and whoever ends the pool gets it
            self.last_error = f"{type(error).__name__}: {error}"
            await self.become(ReplicaState.GIVEN_UP)
            raise

    async def _run(self) -> None:
        while self.state is ReplicaState.STARTING:
            end = await self._live()
            self.last_error = str(end)
            over = self._why_over(end)
            await self.become(ReplicaState.GIVEN_UP if over else ReplicaState.STARTING)
            self._tell(f"server {self.number}: {end}\n{over or 'it is started again'}")

    def _why_over(self, end: DeskrollError) -> str:
        """Why there is no other server after this one; empty: there is."""
        if isinstance(end, ServerDied) and end.hopeless:
            return "given up: another start would end in the same way"
        asked_to = self._broken is not None and self._broken.done()
        if asked_to or self._is_of_weights(end) or not self._is_too_much(running_time()):
            return ""
        return f"given up after {len(self._deaths)} deaths within {self._config.restarts.within:g} s"

    def _is_of_weights(self, end: DeskrollError) -> bool:
        """Whether its server did not come up, perhaps for what it was to come up with."""
        return self._trying is not None and self._supply.note_failed(self._trying, str(end))

    async def renew(self, checkpoint: Checkpoint) -> None:
        """Bring weights into its server, where it is up (one that starts comes up with what is wanted by then).

        Returns once it is up again, perhaps as another server, and perhaps with what was served before: the supply
        says what is served by now.
        """
        server, loader, broken = self._server, self._loader, self._broken
        if self.state is not ReplicaState.UP or server is None or loader is None or broken is None:
            return
        if loader.holds is checkpoint:
            return
        try:
            await loader.renew(checkpoint, lambda: self._server is server)
            self._supply.note_up(loader.holds)
        except Exception as error:  # noqa: BLE001  (whatever it was, nobody asks the server any more)
            what = f"a refresh died: {type(error).__name__}: {error}"
            failed = error if isinstance(error, DeskrollError) else ModelError(what)
            if not loader.must_restart(failed) and self._supply.take_back(checkpoint, str(failed)):
                return
            if not broken.done():
                broken.set_result(failed)
            async with self._changed:
                await self._changed.wait_for(lambda: self._server is not server)
        await self.settled()  # it may have died meanwhile, which says nothing of the weights

    async def settled(self) -> ReplicaState:
        """Wait until it is up, or will not be."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.state is not ReplicaState.STARTING)
            return self.state

    async def drain(self) -> None:
        """Let its open requests come to their end; it is not asked any more."""
        if self._server is not None:
            await self._router.drain(self._server.url)

    async def become(self, state: ReplicaState) -> None:
        """Say how it stands, to whoever waits for that."""
        async with self._changed:
            self.state = state
            self._changed.notify_all()

    def _is_too_much(self, now: float) -> bool:
        """Whether this death is one too many."""
        self._died += 1
        self._deaths.append(now)
        while self._deaths[0] < now - self._config.restarts.within:
            self._deaths.popleft()
        return len(self._deaths) > self._config.restarts.most

    def _endpoint(self, url: str) -> Server:
        keeps = self._config.refresh is RefreshMode.KEEP and not self._config.enable_lora
        return Server(url=url, model=self._config.served_name, keeps=keeps, takes_sessions=True)

    async def _live(self) -> DeskrollError:
        """One server, from its start to its end; why it ended."""
        self._trying = self._supply.served
        loader = Loader(self._config, self._router, self._trying, self._tell, self._had)
        server = self._make(self.number, loader.folder)
        server.reserve()
        url = server.url
        try:
            self._router.add(self._endpoint(url), starting=True)
            self._server, self._loader = server, loader
            self._broken = asyncio.get_running_loop().create_future()
            await loader.begin(server, url, await server.start())
            while loader.holds is not self._supply.served:  # others came while it started
                self._trying = self._supply.served
                await loader.catch_up(self._trying)
            self._supply.note_up(loader.holds)
            self._trying = None
            self._router.ready(url, model=loader.model, version=loader.version)
            loader.offer()
            await self.become(ReplicaState.UP)
            ends: tuple[asyncio.Future[Any], ...] = (server.died, self._broken)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            return self._broken.result() if self._broken.done() else server.died.result()
        except DeskrollError as error:
            return error
        finally:
            self.state, self._server, self._loader = ReplicaState.STARTING, None, None
            self._had = loader.wanted()
            self._router.remove(url)
            await server.stop()
