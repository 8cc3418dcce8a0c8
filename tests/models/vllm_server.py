"""A vLLM to try things on: where it is, what it serves, and how it is asked."""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from deskroll.models.scripted import Script, ScriptedServer, VllmSettings
from tests.waiting import eventually

PNG = base64.b64decode(  # one pixel
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(PNG).decode()}}
SLOW = "tell me a very long story"
SCRIPT = Script.parse(
    {
        "replies": [
            {"when": SLOW, "turns": [{"text": "once upon a time " * 20, "latency": 2}]},
            {"when": "forever", "turns": [{"text": "and then " * 50, "latency": 3600}]},
            {"turns": [{"text": "it is a fine day, thank you"}]},
        ]
    }
)


@dataclass
class Answer:
    """What came back, read as far as a test wants."""

    status: int
    text: str
    json: dict  # type: ignore[type-arg]

    @property
    def choice(self) -> dict:  # type: ignore[type-arg]
        return self.json["choices"][0]  # type: ignore[no-any-return]

    @property
    def ids(self) -> list[int]:
        return self.choice["token_ids"]  # type: ignore[no-any-return]

    @property
    def logprobs(self) -> list[float]:
        return [each["logprob"] for each in self.choice["logprobs"]["content"]]


@dataclass
class Vllm:
    """One server, real or scripted."""

    session: aiohttp.ClientSession
    url: str
    """The start of every address, without /v1."""
    name: str
    weights: Callable[[int], Path]
    """The folder with the weights of that version; it starts with version 1."""
    adapter: Callable[[int], Path] | None
    """The folder with an adapter; None: it has none."""
    real: bool = False
    sees: bool = True
    """Whether the model takes images."""
    headers: dict[str, str] = field(default_factory=dict)
    scripted: ScriptedServer | None = None

    async def call(self, method: str, path: str, body: object = None) -> Answer:
        async with self.session.request(method, self.url + path, json=body, headers=self.headers) as response:
            is_json = response.content_type == "application/json"
            return Answer(response.status, await response.text(), await response.json() if is_json else {})

    async def get(self, path: str) -> Answer:
        return await self.call("GET", path)

    async def post(self, path: str, body: object = None) -> Answer:
        return await self.call("POST", path, body)

    async def ask(self, text: str, *, image: bool = False, model: str = "", **fields: object) -> Answer:
        """Ask greedily, so that a real one says the same each time; a long story is 1,000 tokens."""
        content = [{"type": "text", "text": text}, *([IMAGE] if image else [])]
        fields = {"temperature": 0, "max_tokens": 8, "logprobs": True, "return_token_ids": True, **fields}
        if text in (SLOW, "forever"):
            fields |= {"max_tokens": 1000, "ignore_eos": True}
        body = {"model": model or self.name, "messages": [{"role": "user", "content": content}], **fields}
        return await self.post("/v1/chat/completions", body)

    async def gauge(self, name: str) -> float:
        metrics = (await self.get("/metrics")).text
        found = re.search(rf"^vllm:num_requests_{name}\{{.*\}} ([0-9.e+]+)$", metrics, re.MULTILINE)
        assert found, metrics
        return float(found[1])

    async def until(self, name: str, value: float) -> None:
        async def reached() -> bool:
            return await self.gauge(name) == value

        await eventually(reached, f"{name} is {value:g}")

    async def until_paused(self) -> None:
        async def paused() -> bool:
            return bool((await self.get("/is_paused")).json["is_paused"])

        await eventually(paused, "it is paused")

    async def load(self, version: int) -> Answer:
        """Load weights, without any pause or reset."""
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(self.weights(version))}}
        return await self.post("/collective_rpc", body)

    async def forget(self) -> None:
        for cache in ("prefix", "mm", "encoder"):
            assert (await self.post(f"/reset_{cache}_cache")).status == 200

    async def refresh(self, version: int) -> None:
        """Load weights as one should."""
        assert (await self.post("/pause?mode=wait")).status == 200
        assert (await self.load(version)).status == 200
        await self.forget()
        assert (await self.post("/resume")).status == 200


@asynccontextmanager
async def scripted_vllm(
    folder: Path, *, unix: bool = False, token: str | None = None, script: Script = SCRIPT, **settings: object
) -> AsyncIterator[Vllm]:
    """A scripted one, which starts with version 1."""

    def written(kind: str) -> Callable[[int], Path]:
        def write(version: int) -> Path:
            place = folder / f"{kind}_{version}"
            place.mkdir(exist_ok=True)
            (place / "model.safetensors").write_bytes(f"{kind} {version}".encode())
            return place

        return write

    weights = written("step")
    vllm = VllmSettings.model_validate({"weights": weights(1), **settings})
    listen = f"unix:{folder}/model.sock" if unix else "127.0.0.1:0"
    connector = aiohttp.UnixConnector(path=f"{folder}/model.sock") if unix else aiohttp.TCPConnector()
    async with (
        ScriptedServer(script, listen=listen, vllm=vllm, token=token, keep_requests=True) as server,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        url = "http://localhost" if unix else server.url.removesuffix("/v1")
        yield Vllm(session, url, "scripted", weights, written("adapter"), scripted=server)
