"""`deskroll serve`: the rollout service: polls a source for batches of tasks and runs them, until it is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from deskroll.cli.options import json_option
from deskroll.cli.places import LocalPath

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command(
    epilog="\b\nExamples:\n"
    "  deskroll serve service.yaml\n"
    "  deskroll serve service.yaml --set source=inbox --set num_rollouts=16 --json\n"
    "  deskroll serve --set source=inbox --set env=math --set model.name=my-model"
)
@click.argument("config", required=False, type=LocalPath(dir_okay=False))
@click.option("--set", "overrides", multiple=True, metavar="A.B=C", help="Any setting. May be repeated.")
@click.option("--force", is_flag=True, help="Finish batches that were begun although the settings have changed since.")
@json_option
def serve(*, config: Path | None, overrides: Sequence[str], force: bool, as_json: bool) -> None:
    """Run batches of tasks as they come: files that are put into a folder, or what an address answers.

    CONFIG (YAML or TOML) has the settings of a run, and of a service: docs/service.md. Started again with the same
    settings, it goes on where it was left, also after kill -9. Ctrl-C or SIGTERM once: no new batch, and those that
    were taken are finished; twice: stop now. --json: one line for each batch that is taken, ended or bad.
    """
    from deskroll.conduct.console import stderr  # noqa: PLC0415
    from deskroll.conduct.log_lines import LogLines  # noqa: PLC0415
    from deskroll.conduct.loops import run_for_command  # noqa: PLC0415
    from deskroll.models.settings import load_env  # noqa: PLC0415
    from deskroll.service.config import load_service  # noqa: PLC0415
    from deskroll.service.serving import serve as serve_batches  # noqa: PLC0415

    if any("api_key" in each for each in overrides):
        raise click.UsageError("--set api_key: other users see command lines; set OPENAI_API_KEY instead, or use .env")
    load_env(Path.cwd())
    with LogLines(stderr()):
        settings = load_service(config, overrides)

    def put(line: bytes) -> None:
        click.echo(line.decode())

    code = run_for_command(serve_batches(settings, force=force, put=put if as_json else None))
    raise click.exceptions.Exit(code)
