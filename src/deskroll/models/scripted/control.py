"""Control: vLLM's own endpoints, beside those of OpenAI's protocol, in front of an engine.

Paths, parameters and answers are those of vLLM 0.32. Guarantees: what is not for it is left alone (None); a request
that cannot be read is a 400 that names the field, a command that fails a 500, and neither changes anything that is
not said.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from aiohttp import web

from deskroll.models.scripted.answers import error
from deskroll.models.scripted.engine import Engine, ReloadFailed
from deskroll.models.scripted.requests import Refused
from deskroll.models.scripted.responses import reply
from deskroll.models.scripted.schedule import PauseMode
from deskroll.models.scripted.settings import Trouble
from deskroll.models.scripted.weights import Weights, WeightsMissing

R = TypeVar("R")
_encode = msgspec.json.Encoder().encode
_TRUE = ("true", "1", "yes", "on")


class _Arguments(msgspec.Struct, frozen=True):
    weights_path: str = ""
    """Empty: where they came from."""


class _Rpc(msgspec.Struct):
    method: str
    kwargs: _Arguments = _Arguments()


class _Version(msgspec.Struct):
    new_version: str


class _Load(msgspec.Struct):
    lora_name: str
    lora_path: str
    load_inplace: bool = False


class _Unload(msgspec.Struct):
    lora_name: str


Handler = Callable[[web.BaseRequest], Awaitable[web.Response]]


class Control:
    """The endpoints of one engine. `trouble` is what goes wrong at the moment."""

    def __init__(self, engine: Engine, trouble: Callable[[], Trouble]) -> None:
        self._engine = engine
        self._trouble = trouble
        self._routes: dict[str, Handler] = {
            "GET /health": self._health,
            "GET /metrics": self._metrics,
            "GET /v1/models": self._models,
            "POST /pause": self._pause,
            "POST /resume": self._resume,
            "GET /is_paused": self._is_paused,
            "POST /collective_rpc": self._collective_rpc,
            "POST /reset_prefix_cache": self._reset_prefix_cache,
            "POST /reset_mm_cache": self._health,  # it holds nothing that follows from weights
            "POST /reset_encoder_cache": self._reset_encoder_cache,
            "POST /update_weight_version": self._update_weight_version,
            "GET /weight_info": self._weight_info,
            "POST /v1/load_lora_adapter": self._load_adapter,
            "POST /v1/unload_lora_adapter": self._unload_adapter,
        }

    def handler(self, request: web.BaseRequest) -> Handler | None:
        """What answers this request; None: nothing here does."""
        return self._routes.get(f"{request.method} {request.path}")

    async def _health(self, _request: web.BaseRequest) -> web.Response:
        return web.Response()

    async def _metrics(self, _request: web.BaseRequest) -> web.Response:
        schedule = self._engine.schedule
        gauges = {
            "running": ("Number of requests in model execution batches.", len(schedule.running)),
            "waiting": ("Number of requests waiting to be processed.", len(schedule.waiting)),
        }
        labels = f'{{engine="0",model_name="{self._engine.settings.name}"}}'
        lines = [
            f"# HELP vllm:num_requests_{name} {meaning}\n"
            f"# TYPE vllm:num_requests_{name} gauge\n"
            f"vllm:num_requests_{name}{labels} {float(value)}\n"
            for name, (meaning, value) in gauges.items()
        ]
        return web.Response(text="".join(lines), content_type="text/plain")

    async def _models(self, _request: web.BaseRequest) -> web.Response:
        engine = self._engine
        name = engine.settings.name
        cards: list[dict[str, object]] = [_card(name, engine.weights.path, None)]
        cards += [_card(adapter, weights.path, name) for adapter, weights in engine.adapters.items()]
        return reply(_encode({"object": "list", "data": cards}))

    async def _pause(self, request: web.BaseRequest) -> web.Response:
        given = request.query.get("mode", PauseMode.ABORT)
        if given not in list(PauseMode):
            raise Refused(f"Input should be 'abort', 'wait' or 'keep', not {given!r}", "query.mode")
        await self._engine.pause(PauseMode(given), clear_cache=_is_true(request, "clear_cache", default="true"))
        return reply(b'{"status":"paused"}')

    async def _resume(self, _request: web.BaseRequest) -> web.Response:
        self._engine.resume()
        return reply(b'{"status":"resumed"}')

    async def _is_paused(self, _request: web.BaseRequest) -> web.Response:
        return reply(_encode({"is_paused": self._engine.schedule.paused is not None}))

    async def _collective_rpc(self, request: web.BaseRequest) -> web.Response:
        asked = await _read(request, _Rpc)
        if asked.method != "reload_weights":
            return _failure(f"Call to {asked.method} method failed: this scripted server knows reload_weights alone")
        folder = Path(asked.kwargs.weights_path or self._engine.weights.path)
        try:
            await self._engine.reload(folder, self._trouble())
        except ReloadFailed as problem:
            return _failure(str(problem))
        return reply(b'{"results":[null]}')

    async def _reset_prefix_cache(self, request: web.BaseRequest) -> web.Response:
        preempt = _is_true(request, "reset_running_requests")
        success = not self._trouble().reset_fails and self._engine.reset_prefixes(preempt=preempt)
        return reply(_encode({"success": success}))

    async def _reset_encoder_cache(self, _request: web.BaseRequest) -> web.Response:
        self._engine.caches.forget_images()
        return web.Response()

    async def _update_weight_version(self, request: web.BaseRequest) -> web.Response:
        self._engine.version = (await _read(request, _Version)).new_version
        return reply(_encode({"success": True, "new_version": self._engine.version}))

    async def _weight_info(self, _request: web.BaseRequest) -> web.Response:
        return reply(_encode({"weight_version": self._engine.version}))

    async def _load_adapter(self, request: web.BaseRequest) -> web.Response:
        asked = await _read(request, _Load)
        if asked.lora_name in self._engine.adapters and not asked.load_inplace:
            raise Refused(f"The lora adapter '{asked.lora_name}' has already been loaded.")
        try:
            self._engine.adapters[asked.lora_name] = Weights.read(Path(asked.lora_path))
        except (WeightsMissing, OSError):
            raise Refused(
                f"Loading lora {asked.lora_name} failed: No adapter found for {asked.lora_path}", "", 404
            ) from None
        return web.Response(text=f"Success: LoRA adapter '{asked.lora_name}' added successfully.")

    async def _unload_adapter(self, request: web.BaseRequest) -> web.Response:
        name = (await _read(request, _Unload)).lora_name
        if self._engine.adapters.pop(name, None) is None:
            raise Refused(f"The lora adapter '{name}' cannot be found.", "", 404)
        return web.Response(text=f"Success: LoRA adapter '{name}' removed successfully.")


def _card(name: str, root: str, parent: str | None) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "vllm", "root": root, "parent": parent}


def _is_true(request: web.BaseRequest, name: str, default: str = "") -> bool:
    return request.query.get(name, default).lower() in _TRUE


def _failure(message: str) -> web.Response:
    return reply(error(message, kind="InternalServerError"), 500)


async def _read(request: web.BaseRequest, kind: type[R]) -> R:
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise Refused(f"Invalid request: {problem}", "body") from None
