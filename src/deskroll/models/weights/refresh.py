"""Refresh: one server gets other weights while it runs, over its control endpoints.

It knows nothing of tickets: with `DRAIN` the caller has let the open requests come back and hands out none; with `KEEP`
they stay open and go on with the new weights; with `ABORT` they end, and whoever asked asks again.

Guarantees: when `refresh` returns, the server has the new weights, its caches hold nothing of the old ones, and it
answers; that was seen in the log-probabilities of a fixed prompt. When it raises `RefreshFailed` and `touched` is set,
nobody knows what is in the server: it is restarted on the new folder, and not asked before that. The same holds when
it is cancelled.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Mapping

import msgspec
from pydantic import JsonValue

from deskroll.errors import DeskrollError, ModelError
from deskroll.models.weights.checkpoint import Checkpoint
from deskroll.models.weights.proof import Control, Proof, ask_proof, said
from deskroll.types import Record


class RefreshMode(enum.StrEnum):
    """What becomes of requests that are open when weights change."""

    DRAIN = "drain"
    """They come back first: every answer is of one version."""
    KEEP = "keep"
    """They stand still and go on with the new weights."""
    ABORT = "abort"
    """They end, and are made again."""


class RefreshStep(enum.StrEnum):
    """What is done to a server, in this order."""

    BEFORE = "before"
    """The fixed prompt is asked."""
    PAUSE = "pause"
    RELOAD = "reload"
    RESET = "reset"
    """What caches hold of the old weights is thrown away."""
    VERSION = "version"
    RESUME = "resume"
    AFTER = "after"
    """The fixed prompt is asked again."""
    PROVE = "prove"
    """The answers are compared."""


class RefreshFailed(ModelError):
    """A server did not get its weights."""

    def __init__(self, message: str, step: RefreshStep) -> None:
        super().__init__(message)
        self.step = step
        """During which it failed."""

    @property
    def touched(self) -> bool:
        """Whether the server must be restarted: anything was done to it."""
        return self.step is not RefreshStep.BEFORE


class Refreshed(Record, frozen=True):
    """A refresh that was done."""

    version: int
    seconds: float
    paused_s: float
    """For how long nothing was generated."""
    before: Proof
    after: Proof


class _Success(msgspec.Struct):
    success: bool | None = None


_PAUSES = {RefreshMode.DRAIN: "wait", RefreshMode.KEEP: "keep", RefreshMode.ABORT: "abort"}


async def refresh(
    server: Control,
    checkpoint: Checkpoint,
    mode: RefreshMode,
    *,
    model: str,
    same_tensors: bool = False,
    pausing: Callable[[], None] = lambda: None,
    changed: Callable[[], None] = lambda: None,
) -> Refreshed:
    """Bring weights into a server that serves as `model`; `same_tensors`: they hold what is in it already.

    `pausing` is called just before the pause, `changed` in it: what ends before that is of the old weights alone.
    """
    work = _Refresh(server, checkpoint, changed)
    begin = time.monotonic()
    try:
        before, again = await ask_proof(server, model), await ask_proof(server, model)
        pausing()
        paused = time.monotonic()
        await work.change(mode)
        resumed = time.monotonic()
        work.step = RefreshStep.AFTER
        after = await ask_proof(server, model)
    except (DeskrollError, OSError) as error:
        text = str(error) or type(error).__name__
        raise RefreshFailed(f"version {checkpoint.version}, step {work.step}: {text}", work.step) from error
    if not same_tensors:
        _check_changed(checkpoint, before, again, after)
    return Refreshed(
        version=checkpoint.version,
        seconds=time.monotonic() - begin,
        paused_s=resumed - paused,
        before=again,
        after=after,
    )


class _Refresh:
    """The requests of one refresh, and how far it is."""

    def __init__(self, server: Control, checkpoint: Checkpoint, changed: Callable[[], None]) -> None:
        self.step = RefreshStep.BEFORE
        self._server = server
        self._checkpoint = checkpoint
        self._changed = changed

    async def change(self, mode: RefreshMode) -> None:
        """All between the two answers."""
        self.step = RefreshStep.PAUSE
        await self._post("/pause", params={"mode": _PAUSES[mode]})
        self.step = RefreshStep.RELOAD
        path: JsonValue = {"weights_path": str(self._checkpoint.path)}
        await self._post("/collective_rpc", json={"method": "reload_weights", "kwargs": path})
        self.step = RefreshStep.RESET
        # Requests that stand still hold blocks with the old weights' keys and values; these are computed anew.
        running = {"reset_running_requests": "true"} if mode is RefreshMode.KEEP else None
        await self._post("/reset_prefix_cache", params=running, must_say=True)
        await self._post("/reset_mm_cache")
        await self._post("/reset_encoder_cache")
        self.step = RefreshStep.VERSION
        await self._post("/update_weight_version", json={"new_version": str(self._checkpoint.version)})
        self._changed()
        self.step = RefreshStep.RESUME
        await self._post("/resume")

    async def _post(
        self, path: str, *, json: JsonValue = None, params: Mapping[str, str] | None = None, must_say: bool = False
    ) -> None:
        status, body = await self._server.post(path, json=json, params=params)
        if status != 200:
            raise ModelError(f"{path} answered {status}: {said(body)}")
        if not _succeeded(body, must_say):
            raise ModelError(f"{path} answered 200 without success: {said(body)}")


def _succeeded(body: bytes, must_say: bool) -> bool:
    """Whether the body of a 200 says so: `/reset_prefix_cache` answers 200 also where it did nothing."""
    try:
        success = msgspec.json.decode(body, type=_Success).success
    except (msgspec.MsgspecError, UnicodeDecodeError):
        success = None
    return success is True or (success is None and not must_say)


def _check_changed(checkpoint: Checkpoint, before: Proof, again: Proof, after: Proof) -> None:
    noise = before.distance(again)
    if min(before.distance(after), again.distance(after)) <= 2 * noise:
        message = (
            f"version {checkpoint.version}: the log-probabilities of the fixed prompt are the same after the reload "
            f"as before it (within {2 * noise:g}), though the tensors in {checkpoint.path} are others"
        )
        raise RefreshFailed(message, RefreshStep.PROVE)
