"""ModelServicePool: servers of one model on this machine behind a router: started, watched, refreshed and ended.

Guarantees: a server is asked once it has answered a first prompt, and under the version of the weights that it has; one
that died is started again; newer weights go to `rolling` servers at a time, and to the next ones once these are up;
what is refused, or what no server takes, is told once, and the old weights go on; a change of weights, or a removal,
that has begun comes to its end also where whoever asked for it is cancelled. When the block ends, nothing is left; what
a pool whose process was killed has left is ended before the first server is started.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

from deskroll.errors import DeskrollError, InputError, ModelError
from deskroll.events import EventSink
from deskroll.host.listen import Listen
from deskroll.host.runtime_folder import make_scratch_folder
from deskroll.host.supervise import Supervisor
from deskroll.models.base import ANY_CALL, ModelCall
from deskroll.models.openai import OpenAIModel
from deskroll.models.router.roster import EndpointView
from deskroll.models.router.router import Router, Server
from deskroll.models.router.service import serve_router
from deskroll.models.settings import ModelSettings, read_address
from deskroll.models.vllm.config import ModelPoolConfig
from deskroll.models.vllm.gpus import find_gpus
from deskroll.models.vllm.loading import names_offered, version_text
from deskroll.models.vllm.notes import ServerNotes
from deskroll.models.vllm.real import vllm_starter
from deskroll.models.vllm.reap import reap_servers
from deskroll.models.vllm.replica import Replica, ReplicaState, Starter
from deskroll.models.vllm.status import CheckpointInfo, PoolStatus, Reloaded
from deskroll.models.vllm.supply import Supply
from deskroll.models.weights.checkpoint import Checkpoint, CheckpointKind
from deskroll.models.weights.refusal import CheckpointRefused, Refusal
from deskroll.types import Completion

_log = logging.getLogger(__name__)
_SOCKET = "models.sock"
T = TypeVar("T")


class ModelServicePool:
    """Use with `async with`; servers come up meanwhile, and requests wait for them."""

    def __init__(
        self,
        config: ModelPoolConfig,
        *,
        make: Starter | None = None,
        listen: Listen | None = None,
        token: str = "",
        sink: EventSink | None = None,
        tell: Callable[[str], None] = _log.warning,
        note: Callable[[str], None] = _log.info,
    ) -> None:
        """`make` starts servers (default: vLLM); `listen`: where runs ask (default: a socket of its own); `tell` gets
        what an operator should know, as it happens, and `note` which weights are taken."""
        self.config = config
        self._make = make
        self._listen = listen
        self._token = token
        self._sink = sink
        self._tell = tell
        self._note = note
        self._replicas: list[Replica] = []
        self._lives: dict[int, asyncio.Task[None]] = {}
        self._moving = asyncio.Lock()
        self._moves: set[asyncio.Task[Any]] = set()
        self._stack = AsyncExitStack()
        self._router: Router
        self._supply: Supply
        self._client: OpenAIModel

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._supply = await Supply.open(self.config, self._tell)
            for left in await reap_servers(ServerNotes()):  # else their memory is missing
                self._tell(f"ended model server {left.id} ({left.model}), which a process that died had left")
            make = self._make or vllm_starter(self.config, os.environ, len(await find_gpus()))
            self._router = await stack.enter_async_context(Router(sink=self._sink, coming=self._coming))
            listen = self._listen or Listen(path=str(_own_folder(stack) / _SOCKET))
            self._listen = await stack.enter_async_context(serve_router(self._router, listen, self._token))
            settings = ModelSettings(name=self.config.served_name, pool=str(self._listen))
            stack.push_async_callback(self._end_servers)
            stack.push_async_callback(self._end_moves)
            for number in range(self.config.replicas):
                replica = Replica(number, self.config, self._supply, self._router, make, self._tell)
                self._replicas.append(replica)
                self._lives[number] = asyncio.create_task(replica.run(), name=f"model server {number}")
            self._client = await stack.enter_async_context(OpenAIModel(settings))
            if self._supply.is_watched:
                supervisor = Supervisor()
                stack.push_async_callback(supervisor.close)
                supervisor.keep("the look for newer weights", self._watch)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.shutdown()

    @property
    def address(self) -> str:
        """Where runs ask: what they write as model.pool."""
        return str(self._listen)

    async def shutdown(self) -> None:
        """End all servers; requests that wait are told."""
        await self._stack.aclose()

    async def ready(self) -> None:
        """Wait until every server is up or given up; raises `ModelError` where none is up."""
        for replica in self._replicas:
            await replica.settled()
        if all(replica.state is not ReplicaState.UP for replica in self._replicas):
            why = "\n".join(("no server of the pool is up:", *(replica.last_error for replica in self._replicas)))
            self._router.refuse(why)
            raise ModelError(why)

    # --- requests ---

    async def generate(
        self, messages: Sequence[bytes], tools: bytes | None = None, *, call: ModelCall = ANY_CALL
    ) -> Completion:
        """One completion of whichever server has the most room; see `Model`."""
        return await self._client.complete(messages, tools, call=call)

    # --- weights ---

    async def load_latest_model(self) -> Reloaded:
        """Serve the newest weights of the source, if there are newer ones; returns once those that are up have them."""
        return await self._finish(self._load_latest())

    async def reload(self, folder: Path) -> Reloaded:
        """Serve the weights in a folder, also where they are older; raises `CheckpointRefused`."""
        return await self._finish(self._load(folder))

    def checkpoint_info(self) -> CheckpointInfo:
        """What is served."""
        served = self._supply.served
        return CheckpointInfo(
            path=str(served.path), version=version_text(served, adapters=self.config.enable_lora), kind=served.kind,
            refused=self._supply.refused,
        )  # fmt: skip

    # --- servers ---

    def endpoints(self) -> tuple[EndpointView, ...]:
        """How each server stands, those that were added included."""
        return self._router.view()

    def add_service(self, url: str, model: str = "", max_in_flight: int | None = None) -> None:
        """Ask a server that somebody else runs, too; it keeps its own weights, and its answers have no version."""
        shown = read_address(url, "url").shown
        self._router.add(Server(url=shown, model=model or self.config.served_name, max_in_flight=max_in_flight))

    async def remove_service(self, url: str) -> None:
        """Let a server go once its open requests are over; one of the pool's own ends then."""
        shown = read_address(url, "url").shown
        replica = next((each for each in self._replicas if each.url == shown), None)
        if replica is None:
            self._router.remove(shown)
            return
        if sum(each.state in (ReplicaState.UP, ReplicaState.STARTING) for each in self._replicas) == 1:
            raise InputError(f"{shown} is the pool's last server of its own; end the pool instead (Ctrl-C)")
        await self._finish(self._remove(replica))

    async def _remove(self, replica: Replica) -> None:
        await replica.drain()
        await _cancel(self._lives.pop(replica.number))
        await replica.become(ReplicaState.REMOVED)

    async def status(self) -> PoolStatus:
        """All of it."""
        return PoolStatus(
            address=self.address, model=self.config.served_name, checkpoint=self.checkpoint_info(),
            replicas=tuple(replica.status() for replica in self._replicas), endpoints=self.endpoints(),
            waiting=self._router.waiting, gpus=await find_gpus(),
        )  # fmt: skip

    # --- the machinery ---

    def _coming(self) -> dict[str, str]:
        """By which names servers can be asked once they are up."""
        served = self._supply.served
        return names_offered(self.config, [served.version] if served.kind is CheckpointKind.ADAPTER else [])

    async def _finish(self, move: Coroutine[object, object, T]) -> T:
        """Do it to its end, whoever waits for it: half a change would leave servers that nobody may ask."""
        task = asyncio.create_task(move, name="a change of weights, or of servers")
        self._moves.add(task)
        task.add_done_callback(self._moves.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if task.cancelled() and waiting is not None and not waiting.cancelling():
                raise ModelError("the pool was ended before that was done") from None
            task.add_done_callback(self._tell_failed)
            raise

    def _tell_failed(self, move: asyncio.Task[Any]) -> None:
        """Of a change for which nobody waits any more."""
        error = None if move.cancelled() else move.exception()
        if error is not None and not isinstance(error, CheckpointRefused):  # that is told by whoever refused it
            self._tell(f"a change of weights or servers failed: {str(error) or type(error).__name__}")

    async def _load_latest(self) -> Reloaded:
        async with self._moving:
            found = await self._supply.newest()
            return await self._move(found) if found is not None else self._reloaded(changed=False)

    async def _load(self, folder: Path) -> Reloaded:
        async with self._moving:
            return await self._move(await self._supply.read(folder))

    async def _move(self, new: Checkpoint) -> Reloaded:
        """Bring weights to all servers, some at a time; where none takes them: `CheckpointRefused`, told by then."""
        before = self._supply.served
        self._supply.serve(new)
        at_a_time = self.config.rolling or len(self._replicas)
        for first in range(0, len(self._replicas), at_a_time):
            await self._renew(self._replicas[first : first + at_a_time])
            if self._supply.served is not new:
                await self._renew(self._replicas)  # one may have them by now
                raise CheckpointRefused(Refusal.NOT_LOADED, self._supply.refused, file=str(new.path))
        went_back = new.version < before.version
        done = self._reloaded(went_back=went_back)
        if went_back:
            self._tell(f"went back from version {before.version} to {new.version}")
        else:
            self._note(done.shown)
        return done

    def _reloaded(self, *, changed: bool = True, went_back: bool = False) -> Reloaded:
        up = sum(replica.state is ReplicaState.UP for replica in self._replicas)
        return Reloaded(changed=changed, checkpoint=self.checkpoint_info(), went_back=went_back, up=up)

    async def _renew(self, replicas: Sequence[Replica]) -> None:
        await asyncio.gather(*(replica.renew(self._supply.served) for replica in replicas))

    async def _watch(self) -> None:
        """Look for newer weights again and again; what goes wrong is told once."""
        told = ""
        while True:
            await asyncio.sleep(self.config.weights.poll)  # a folder tells nobody that it grew
            try:
                await self.load_latest_model()
                told = ""
            except CheckpointRefused:
                told = ""  # by whoever refused it
            except DeskrollError as error:
                if str(error) != told:
                    told = str(error)
                    self._tell(told)

    async def _end_moves(self) -> None:
        for task in self._moves:
            task.cancel()
        await asyncio.gather(*self._moves, return_exceptions=True)

    async def _end_servers(self) -> None:
        await asyncio.gather(*(_cancel(task) for task in self._lives.values()))


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


def _own_folder(stack: AsyncExitStack) -> Path:
    folder = make_scratch_folder("router", _SOCKET)
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder
