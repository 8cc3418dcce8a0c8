"""VLLMServer: one `vllm serve` and all of its processes.

Guarantees: its note is written before it is started, so that nothing of it is ever without an owner. `start` returns
when it is ready: it is healthy, and has answered a prompt with token ids and log-probabilities. When it dies, `died`
is done and the error has the cause, as far as its log tells, and the log's path. `stop`, or a start that failed or was
cancelled, leaves no process of it, also where its API process was killed and EngineCore was not.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from deskroll.clocks import running_time, time_limit
from deskroll.errors import ModelError
from deskroll.models.vllm.cause import find_cause
from deskroll.models.vllm.command import Place, ServerCommand
from deskroll.models.vllm.control import ServerControl
from deskroll.models.vllm.family import end_family
from deskroll.models.vllm.notes import ServerNotes
from deskroll.models.weights.proof import Proof, ask_proof

_LOOK_S = 0.1
_HEALTH_S = 10.0
_GRACE_S = 10.0
"""For how long a server may end by itself."""
_LAST_BYTES = 131_072
"""Of its log: what the end of a server says, several tracebacks in each of its processes."""


class ServerDied(ModelError):
    """A server ended, or did not become ready; the text has the cause, and where its log is."""

    def __init__(self, message: str, *, hopeless: bool = False) -> None:
        super().__init__(message)
        self.hopeless = hopeless
        """Whether another start would end in the same way."""


class VLLMServer:
    """One server, once: another start is another server. Use with `async with`, or `start` and `stop`."""

    def __init__(
        self,
        notes: ServerNotes,
        make: Callable[[Place], ServerCommand],
        *,
        model: str,
        start_timeout: float,
        number: int = 0,
        gpu: str | None = None,
    ) -> None:
        """`make` says what to start, given its place; `model` is the name to ask for."""
        self.model = model
        self._notes = notes
        self._make = make
        self._start_timeout = start_timeout
        self._number = number
        self._gpu = gpu
        self._place: Place | None = None
        self._begun = False
        self._process: asyncio.subprocess.Process | None = None
        self._control: ServerControl | None = None
        self._watching: asyncio.Task[ServerDied] | None = None
        self.ready_s: float | None = None
        """How long the start took; None: not ready yet."""

    async def __aenter__(self) -> VLLMServer:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    @property
    def id(self) -> str:
        """Its mark; it has one once it is started."""
        return self._placed.id

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self._placed.socket

    @property
    def url(self) -> str:
        """The same, as clients write it."""
        return f"unix:{self.socket}"

    @property
    def log(self) -> Path:
        """What it printed; stays when it is gone."""
        return self._notes.log(self.id)

    @property
    def pid(self) -> int:
        """The process that answers."""
        if self._process is None:
            raise ModelError("the model server has not been started")
        return self._process.pid

    @property
    def control(self) -> ServerControl:
        """HTTP to it."""
        if self._control is None:
            raise ModelError("the model server has not been started, or is stopped")
        return self._control

    @property
    def died(self) -> asyncio.Task[ServerDied]:
        """Done once its API process has ended, with the reason; it is not of use any more then: `stop` it."""
        if self._watching is None:
            raise ModelError("the model server has not been started")
        return self._watching

    def reserve(self) -> None:
        """Write its note: from now on it is known where it will listen, and `stop` has to be called."""
        if self._place is None:
            note = self._notes.open(self.model)
            self._place = Place(
                id=note.id, socket=self._notes.socket(note.id), scratch=self._notes.folder(note.id) / "rpc",
                number=self._number, gpu=self._gpu,
            )  # fmt: skip

    async def start(self) -> Proof:
        """Start it, and wait until it is ready; returns its first answer. Raises `ServerDied`."""
        if self._begun:
            raise ModelError(f"model server {self.id} has been started before; make another one")
        self._begun = True
        self.reserve()
        begin = running_time()
        try:
            await self._launch()
            proof = await self._until_ready()
        except BaseException:
            await asyncio.shield(self.stop(grace=0))
            raise
        self.ready_s = running_time() - begin
        return proof

    async def stop(self, grace: float = _GRACE_S) -> None:
        """End all of it; that it has ended already is no failure. Nothing of it is left then but its log.

        It has `grace` seconds to end by itself; who cancels this takes them away.
        """
        if self._place is None:
            return
        try:
            await self._ask_to_end(grace)
        finally:
            await end_family(self.id)
            if self._watching is not None:
                await self._watching
            if self._control is not None:
                await self._control.__aexit__()
                self._control = None
            self._notes.close(self.id)

    async def _ask_to_end(self, grace: float) -> None:
        """Its API process ends the others; what is left after it would not end."""
        if self._process is None or self._watching is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        await asyncio.wait([self._watching], timeout=grace)

    def _end_of_log(self) -> list[str]:
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _LAST_BYTES))
                return file.read().decode(errors="replace").splitlines()
        except OSError:
            return []

    async def _launch(self) -> None:
        command = self._make(self._placed)
        with self.log.open("ab") as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *command.words,
                    env=dict(command.env),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # a Ctrl-C is for us; we end it
                )
            except OSError as error:
                raise ServerDied(f"{command.words[0]} cannot be started: {error.strerror}") from error
        self._watching = asyncio.create_task(self._watch(self._process), name=f"model server {self.id}")
        self._control = await ServerControl(self._placed.socket).__aenter__()

    async def _watch(self, process: asyncio.subprocess.Process) -> ServerDied:
        code = await process.wait()
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        return self._died(how)

    def _died(self, how: str) -> ServerDied:
        cause = find_cause(self._end_of_log(), was_ready=self.ready_s is not None)
        why = f": {cause.text}" if cause.text else ""
        to_do = f"; to do: {cause.to_do}" if cause.to_do else ""
        text = f"model server {self.id} ({self.model}) {how}{why}{to_do}; its log: {self.log}"
        return ServerDied(text, hopeless=bool(to_do))

    async def _until_ready(self) -> Proof:
        try:
            async with time_limit(self._start_timeout):
                while not await self._is_healthy():
                    await asyncio.wait([self.died], timeout=_LOOK_S)
                    if self.died.done():
                        raise self.died.result()
                return await self._warm_up()
        except TimeoutError:
            raise self._died(f"was not ready within {self._start_timeout:g} s (start_timeout)") from None

    async def _is_healthy(self) -> bool:
        if not self.socket.exists():
            return False
        with contextlib.suppress(ModelError):
            status, _ = await self.control.get("/health", timeout=_HEALTH_S)
            return status == 200
        return False

    async def _warm_up(self) -> Proof:
        """The first answer is slow, and shows whether tokens are exact."""
        asking = asyncio.create_task(ask_proof(self.control, self.model))
        try:
            await asyncio.wait([asking, self.died], return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise self.died.result()
            return asking.result()
        except ServerDied:
            raise
        except ModelError as error:
            raise self._died(f"is healthy, but of no use: {error}") from error
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    @property
    def _placed(self) -> Place:
        if self._place is None:
            raise ModelError("the model server has not been started")
        return self._place
