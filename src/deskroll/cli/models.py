"""`deskroll models`: ask a model one question, serve a scripted one; a pool of vLLM servers (models_up.py)."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deskroll.cli import models_up
from deskroll.cli.options import json_option, print_json
from deskroll.cli.places import LocalPath
from deskroll.errors import InputError, plain

if TYPE_CHECKING:
    from deskroll.events import Event
    from deskroll.models.prices import Prices
    from deskroll.models.scripted import ScriptedServer
    from deskroll.models.settings import ModelSettings
    from deskroll.types import Completion

_LONGEST_ANSWER = 1_000_000
_LONGEST_REASON = 120
"""Of why a request is made again: one line."""


@click.group(epilog='\b\nExample:\n  deskroll models ask "Are you there?" --base-url http://127.0.0.1:8000/v1')
def models() -> None:
    """Ask a model one question; serve one with vLLM, or a scripted one, for which no key is needed."""


for _command in (models_up.up, models_up.ls, models_up.reload, models_up.add, models_up.remove, models_up.reap):
    models.add_command(_command)


@models.command(
    epilog="\b\nExamples:\n  deskroll models scripted replies.yaml --listen 127.0.0.1:8000\n"
    "  deskroll models scripted replies.yaml --vllm --listen unix:/tmp/model.sock --set weights=checkpoints/12"
)
@click.argument("script", type=LocalPath())
@click.option(
    "--listen", default="127.0.0.1:0", show_default=True, metavar="HOST:PORT|unix:PATH",
    help="Where to serve; port 0: any that is free. Beyond loopback: with --token-env.",
)  # fmt: skip
@click.option(
    "--token-env", default="", metavar="NAME",
    help="The environment variable that holds the token which clients must send as their key.",
)  # fmt: skip
@click.option("--vllm", is_flag=True, help="Stand in for vLLM: its control endpoints, weights, queue and /metrics.")
@click.option(
    "--set", "overrides", multiple=True, metavar="FIELD=VALUE",
    help="With --vllm: name, weights, max_running, or what goes wrong, e.g. --set trouble.reload=fails.",
)  # fmt: skip
@json_option
def scripted(
    *, script: Path, listen: str, token_env: str, vllm: bool, overrides: tuple[str, ...], as_json: bool
) -> None:
    """Serve a model that answers from SCRIPT (YAML, TOML or JSON) until Ctrl-C; prints its address.

    It speaks OpenAI's protocol (POST /v1/chat/completions), checks requests strictly and makes faults on demand.
    docs/models.md describes the format of scripts.
    """
    from deskroll.config import load  # noqa: PLC0415
    from deskroll.host.listen import Listen  # noqa: PLC0415
    from deskroll.models.scripted import Script, ScriptedServer, VllmSettings  # noqa: PLC0415
    from deskroll.models.settings import is_loopback, load_env  # noqa: PLC0415

    if overrides and not vllm:
        raise InputError("--set is for a server that stands in for vLLM: add --vllm")
    load_env(Path.cwd())
    token = os.environ.get(token_env, "").strip() if token_env else ""
    if token_env and not token:
        raise InputError(f"--token-env {token_env}: that environment variable is not set")
    place = Listen.parse(listen)
    if not (token or vllm or place.is_unix or is_loopback(place.host)):
        raise InputError(
            f"--listen {place.host} is not a loopback address: others could reach it. "
            "Name a variable that holds a token with --token-env, or listen on 127.0.0.1"
        )
    settings = load(VllmSettings, None, overrides, name="vllm") if vllm else None
    server = ScriptedServer(Script.load(script), listen=listen, token=token or None, vllm=settings)
    asyncio.run(_serve(server, as_json))


async def _serve(server: ScriptedServer, as_json: bool) -> None:
    import msgspec  # noqa: PLC0415

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with server:
        click.echo(msgspec.json.encode({"url": server.url}) if as_json else f"scripted model on {server.url}")
        await stop.wait()
        stats = server.stats
    if as_json:
        print_json(stats)
    else:
        faults = ", ".join(f"{count} {kind}" for kind, count in stats.faults.items()) or "none"
        click.echo(f"stopping ... {stats.requests:,} requests, {stats.refused:,} refused; faults: {faults}")


@models.command(
    epilog='\b\nExamples:\n  deskroll models ask "What is on this screen?" --image screen.png\n'
    '  deskroll models ask "6*7?" --base-url http://127.0.0.1:8000/v1 --model my-model\n'
    '  deskroll models ask "6*7?" --pool unix:/run/deskroll/models.sock\n'
    '  deskroll models ask "6*7?" --set temperature=0 --prices prices.yaml\n'
    '  deskroll models ask "6*7?" --local checkpoints/step_12 --set temperature=0'
)
@click.argument("text")
@click.option("--model", default="", metavar="NAME", help="The model. Default: that of the settings.")
@click.option(
    "--base-url", default="", metavar="URL", help="Where it is served. Default: $OPENAI_BASE_URL, else OpenAI."
)
@click.option("--pool", default="", metavar="ADDRESS", help="A pool of servers, as `models up` says where it is.")
@click.option(
    "--local",
    default="",
    metavar="DIR",
    help="A folder with a model, which is loaded for this alone: no server is asked.",
)
@click.option(
    "--trainer-python", default="", metavar="FILE",
    help="With --local: a Python that has torch and transformers. Default: that of `make vllm`.",
)  # fmt: skip
@click.option("--image", "images", multiple=True, type=LocalPath(), help="A PNG or JPEG to show it.")
@click.option(
    "--set", "overrides", multiple=True, metavar="FIELD=VALUE",
    help="Any other setting of the model, e.g. --set temperature=0 --set timeout=60.",
)  # fmt: skip
@click.option("--prices", type=LocalPath(), metavar="FILE", help="A file with prices (YAML or TOML) of your own.")
@json_option
def ask(
    *,
    text: str,
    images: tuple[Path, ...],
    overrides: tuple[str, ...],
    prices: Path | None,
    as_json: bool,
    **where: str,
) -> None:
    """Ask a model one question; print the answer, then tokens, cost and time.

    The key is read from $OPENAI_API_KEY, which a file .env in the working directory may set.
    """
    from deskroll.models.prices import NO_PRICES, load_prices  # noqa: PLC0415
    from deskroll.models.settings import load_env  # noqa: PLC0415

    load_env(Path.cwd())
    if where["local"]:
        _refuse_servers(where, prices)
    settings = _settings(where["model"], where["base_url"], where["pool"], overrides)
    shown = [(path.name, _read(path)) for path in images]
    if where["local"]:
        asking = _ask_local(where, settings, text, images)
    else:
        own = NO_PRICES if prices is None else load_prices(prices)
        asking = _ask(settings, own, text, shown)
    completion, seconds = asyncio.run(asking)
    _tell(completion, seconds, as_json)


def _settings(model: str, base_url: str, pool: str, overrides: tuple[str, ...]) -> ModelSettings:
    from deskroll.config import load  # noqa: PLC0415
    from deskroll.models.settings import KEY_VARIABLE, ModelSettings  # noqa: PLC0415

    if any(override.partition("=")[0].strip() == "api_key" for override in overrides):
        raise InputError(f"--set api_key: other users see command lines; set ${KEY_VARIABLE} instead, or use .env")
    flags = (("name", model, "--model"), ("base_url", base_url, "--base-url"), ("pool", pool, "--pool"))
    return load(ModelSettings, None, [*overrides, *(each for each in flags if each[1])])


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"--image {path}: it cannot be read: {error.strerror}") from None


async def _ask(
    settings: ModelSettings, prices: Prices, text: str, images: list[tuple[str, bytes]]
) -> tuple[Completion, float]:
    from deskroll.models.messages import Message  # noqa: PLC0415
    from deskroll.models.openai import OpenAIModel  # noqa: PLC0415
    from deskroll.models.vllm.waiting import tell_waiting  # noqa: PLC0415

    message = Message.user(text, images)
    began = time.monotonic()
    async with (
        OpenAIModel(settings, sink=_Retries(), prices=prices) as client,
        tell_waiting(settings.pool, lambda line: click.echo(line, err=True)),
    ):
        completion = await client.complete([message.sent])
    return completion, time.monotonic() - began


def _refuse_servers(where: Mapping[str, str], prices: Path | None) -> None:
    given = {"--model": where["model"], "--base-url": where["base_url"], "--pool": where["pool"], "--prices": prices}
    if extra := [name for name, value in given.items() if value]:
        raise InputError(f"--local asks no server: leave {', '.join(extra)} out")


async def _ask_local(
    where: Mapping[str, str], settings: ModelSettings, text: str, images: Sequence[Path]
) -> tuple[Completion, float]:
    from deskroll.train.local import ask_local  # noqa: PLC0415

    began = time.monotonic()
    folder = Path(where["local"]).expanduser()
    completion = await ask_local(folder, text, images, settings.sampling, python=where["trainer_python"])
    return completion, time.monotonic() - began


class _Retries:
    """Tells why it takes longer."""

    def emit(self, event: Event) -> None:
        """Print what went wrong with a request that is made again."""
        from deskroll.events import ModelRetried  # noqa: PLC0415

        if isinstance(event, ModelRetried):
            reason = plain(event.reason.partition(" (is ")[0], _LONGEST_REASON)  # the hint comes once, in the end
            click.echo(f"try {event.tries}: {reason}; again in {event.pause_s:.1f} s", err=True)


def _tell(completion: Completion, seconds: float, as_json: bool) -> None:
    import msgspec  # noqa: PLC0415

    if as_json:
        print_json({**msgspec.to_builtins(completion), "seconds": round(seconds, 3)})
        return
    click.echo(plain(completion.text, _LONGEST_ANSWER, keep="\n\t"))
    for call in completion.tool_calls:
        click.echo(f"calls {plain(call.name)}({plain(call.arguments)})")
    price = "cost unknown" if completion.cost_usd is None else f"{completion.cost_usd:.6f} USD"
    tokens = f"{completion.prompt_tokens:,} + {completion.completion_tokens:,} tokens"
    tries = f", {completion.tries} tries" if completion.tries > 1 else ""
    click.echo(f"[{plain(completion.model)}: {tokens}, {price}, {seconds:.2f} s{tries}]")
