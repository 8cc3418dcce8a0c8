"""`deskroll runs`: which runs there are."""

from __future__ import annotations

import click

from deskroll.cli.options import print_json
from deskroll.errors import InputError, plain


@click.group(epilog="\b\nExample:\n  deskroll runs ls results")
def runs() -> None:
    """See which runs there are."""


@runs.command(epilog="\b\nExamples:\n  deskroll runs ls\n  deskroll runs ls s3://bucket/results --json")
@click.argument("folder", default="results")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output, one object a run.")
def ls(folder: str, as_json: bool) -> None:
    """List all runs in FOLDER (default: results), newest first: how each stands, how well it did, what it cost.

    SUCCESS is over what was scored; a ? stands for calls of a model whose price is not known. Exit code 0: all were
    read; 1: some could not be.
    """
    from deskroll.conduct.program import program  # noqa: PLC0415
    from deskroll.report import terminal  # noqa: PLC0415
    from deskroll.report.listing import line_of, listed  # noqa: PLC0415
    from deskroll.store import list_runs  # noqa: PLC0415

    found = list_runs(folder)
    if not found:
        raise InputError(
            f"{plain(folder)} holds no run; name the folder that runs are kept in (output_dir), or make one: "
            f"{program()} run TASKS"
        )
    lines = [line_of(each) for each in found]
    if as_json:
        print_json(lines, pretty=True)
    else:
        console = terminal.console()
        console.print(listed(lines, console.width))
    raise click.exceptions.Exit(1 if any(each.problem for each in lines) else 0)
