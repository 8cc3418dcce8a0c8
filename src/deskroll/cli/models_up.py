"""`deskroll models up`: serve a pool of vLLM servers until Ctrl-C; and `ls`, `reload`, `add`, `remove`, `reap`."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deskroll.cli.options import json_option, print_json
from deskroll.cli.places import LocalPath
from deskroll.errors import ModelError, plain
from deskroll.host.tokens import TOKEN_VARIABLE

if TYPE_CHECKING:
    from deskroll.models.vllm.config import ModelPoolConfig
    from deskroll.models.vllm.status import PoolStatus

_LONGEST = 4000
_at = click.option(
    "--at", default="", metavar="ADDRESS",
    help="Where the pool is served, as `models up` says. Default: your usual socket.",
)  # fmt: skip


@click.command(
    epilog="\b\nExamples:\n  deskroll models up --ckpt-path checkpoints/step_0 --replicas 2\n"
    "  deskroll models up pool.yaml --set weights.source=checkpoints"
)
@click.argument("config", required=False, type=LocalPath(dir_okay=False))
@click.option(
    "--ckpt-path", default="", metavar="DIR", help="The folder with the model: weights, configuration, tokenizer."
)
@click.option("--replicas", type=click.IntRange(1), help="How many servers.")
@click.option(
    "--set", "overrides", multiple=True, metavar="FIELD=VALUE",
    help="Any other setting, e.g. --set refresh=keep --set vllm_params.max_model_len=4096.",
)  # fmt: skip
@click.option(
    "--listen", default="", metavar="ADDRESS",
    help=f"unix:PATH, or 127.0.0.1:PORT with a token in {TOKEN_VARIABLE}. Default: your usual socket.",
)  # fmt: skip
@json_option
def up(
    *,
    config: Path | None,
    ckpt_path: str,
    replicas: int | None,
    overrides: tuple[str, ...],
    listen: str,
    as_json: bool,
) -> None:
    """Serve a model with vLLM, by one server or several, until Ctrl-C; runs ask it with model.pool.

    CONFIG (YAML or TOML) is described in docs/models.md. Servers that died are started again, and newer weights of
    weights.source are loaded as they come.
    """
    from deskroll.config import load  # noqa: PLC0415
    from deskroll.models.vllm.config import ModelPoolConfig  # noqa: PLC0415

    given = [f"ckpt_path={ckpt_path}"] if ckpt_path else []
    given += [f"replicas={replicas}"] if replicas else []
    settings = load(ModelPoolConfig, config, [*overrides, *given], name="models up")
    asyncio.run(_up(settings, listen, as_json))


async def _up(config: ModelPoolConfig, at: str, as_json: bool) -> None:
    from deskroll.models.vllm.pool import ModelServicePool  # noqa: PLC0415
    from deskroll.models.vllm.service import control_listen, pool_listen, serve_control  # noqa: PLC0415

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    listen, token = pool_listen(at), os.environ.get(TOKEN_VARIABLE, "").strip()
    async with (
        ModelServicePool(config, listen=listen, token=token, tell=_tell, note=_tell) as pool,
        serve_control(pool, control_listen(listen)),
    ):
        if as_json:
            print_json({"address": pool.address})
        else:
            what = f"{config.replicas} x {plain(config.ckpt_path)} on {pool.address}"
            click.echo(f"{what}: starting, which takes a minute or more; `deskroll models ls` shows how far it is")
        ready = asyncio.create_task(pool.ready())
        ended = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([ready, ended], return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                if isinstance(ready.exception(), ModelError):
                    raise ModelError("no server of the pool is up: what is above says why")
                ready.result()
                status = await pool.status()
                print_json(status) if as_json else _show(status)
            await ended
        finally:
            ready.cancel()
            ended.cancel()
            await asyncio.gather(ready, ended, return_exceptions=True)
        click.echo("stopping ...", err=True)


def _tell(line: str) -> None:
    click.echo(plain(line, _LONGEST, keep="\n"), err=True)


@click.command(epilog="\b\nExample:\n  deskroll models ls --json")
@_at
@json_option
def ls(at: str, as_json: bool) -> None:
    """Show the servers of a pool: state, open requests, version; and what it serves."""
    from deskroll.models.vllm.service import ask_status  # noqa: PLC0415

    _print(asyncio.run(ask_status(at)), as_json)


@click.command(epilog="\b\nExamples:\n  deskroll models reload\n  deskroll models reload checkpoints/step_12")
@click.argument("folder", required=False, metavar="[DIR]", type=LocalPath(file_okay=False))
@_at
@json_option
def reload(folder: Path | None, at: str, as_json: bool) -> None:
    """Serve the newest weights of the pool's source, or those in DIR, which may be older ones."""
    from deskroll.models.vllm.service import ask_reload  # noqa: PLC0415

    done = asyncio.run(ask_reload(at, str(folder.absolute()) if folder is not None else ""))
    if as_json:
        print_json(done)
        return
    click.echo(done.shown)


@click.command(epilog="\b\nExample:\n  deskroll models add http://127.0.0.1:8000/v1 --model my-model")
@click.argument("url")
@click.option("--model", default="", metavar="NAME", help="What the model is called there. Default: as in the pool.")
@_at
@json_option
def add(url: str, model: str, at: str, as_json: bool) -> None:
    """Have a pool ask one more server, which somebody else runs; it keeps its own weights."""
    from deskroll.models.vllm.service import ask_add  # noqa: PLC0415

    _print(asyncio.run(ask_add(at, url, model)), as_json)


@click.command(epilog="\b\nExample:\n  deskroll models remove http://127.0.0.1:8000/v1")
@click.argument("url")
@_at
@json_option
def remove(url: str, at: str, as_json: bool) -> None:
    """Have a pool let a server go, once its open requests are over; one of the pool's own ends then."""
    from deskroll.models.vllm.service import ask_remove  # noqa: PLC0415

    _print(asyncio.run(ask_remove(at, url)), as_json)


@click.command(epilog="\b\nExample:\n  deskroll models reap --dry-run")
@click.option("--dry-run", is_flag=True, help="Only say what would be ended.")
@json_option
def reap(dry_run: bool, as_json: bool) -> None:
    """End model servers that a killed `models up` has left, and so free their memory; nothing else is touched."""
    from deskroll.models.vllm.notes import ServerNotes  # noqa: PLC0415
    from deskroll.models.vllm.reap import reap_servers  # noqa: PLC0415

    reaped = asyncio.run(reap_servers(ServerNotes(), dry_run=dry_run))
    if as_json:
        print_json(reaped)
        return
    for each in reaped:
        pids = ", ".join(map(str, each.pids)) or "none left"
        click.echo(f"{each.id} ({plain(each.model)}): {'would end' if dry_run else 'ended'}; processes: {pids}")
    if not reaped:
        click.echo("nothing is left")


def _print(status: PoolStatus, as_json: bool) -> None:
    print_json(status) if as_json else _show(status)


def _show(status: PoolStatus) -> None:
    checkpoint = status.checkpoint
    click.echo(
        f"{plain(status.model)} on {status.address}, version {checkpoint.version or '-'}: {plain(checkpoint.path)}"
    )
    for view in status.endpoints:
        error = f"  {plain(view.last_error)}" if view.last_error and view.state != "starting" else ""
        click.echo(f"  {view.name}  {view.state}  {view.in_flight}/{view.limit}  version {view.version or '-'}{error}")
    for each in status.replicas:
        if each.state != "up":
            click.echo(f"  {each.shown}")
    for gpu in status.gpus:
        click.echo(f"  GPU {gpu.index}: {gpu.used_mb:,} of {gpu.total_mb:,} MB")
    if checkpoint.refused:
        click.echo(f"  refused: {plain(checkpoint.refused, 300)}")
