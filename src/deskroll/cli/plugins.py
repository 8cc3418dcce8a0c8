"""`deskroll plugins`: everything that can be chosen by name: deskroll's own and what installed packages bring."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deskroll.cli.completing import complete_kind
from deskroll.cli.options import print_json
from deskroll.errors import DeskrollError, InputError, MissingDependency, did_you_mean

if TYPE_CHECKING:
    from deskroll.registry import Entry


@click.group(epilog="\b\nExample:\n  deskroll plugins ls")
def plugins() -> None:
    """See what can be chosen by name."""


@plugins.command(
    epilog="\b\nExamples:\n  deskroll plugins ls\n  deskroll plugins ls --kind agent\n  deskroll plugins ls --json"
)
@click.option("--kind", default="", shell_complete=complete_kind, help="Only this kind: provider, env, agent, ...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def ls(kind: str, as_json: bool) -> None:
    """List plug-ins by kind: what each is, where it comes from, and what has to be installed for it."""
    from deskroll.registry import KINDS, Registry  # noqa: PLC0415

    if kind and kind not in KINDS:
        raise InputError(f"there is no kind {kind!r}{did_you_mean(kind, KINDS)}; kinds: {', '.join(KINDS)}")
    kinds = [kind] if kind else list(KINDS)
    found = [_describe(each, entry) for each in kinds for entry in Registry().entries(each)]
    if as_json:
        print_json(found, pretty=True)
    else:
        _print(found)


def _describe(kind: str, entry: Entry) -> dict[str, Any]:
    from deskroll.plugins import load_base, load_plugin  # noqa: PLC0415

    lacks = problem = ""
    try:
        load_plugin(kind, entry.name, load_base(kind)).check_installed()
    except MissingDependency as error:
        lacks = str(error)
    except (DeskrollError, ImportError) as error:  # one plug-in that is broken hides no other
        problem = str(error)
    return {
        "kind": kind, "name": entry.name, "summary": entry.summary, "source": entry.source, "target": entry.target,
        "extra": entry.extra, "lacks": lacks, "problem": problem,
    }  # fmt: skip


def _print(found: list[dict[str, Any]]) -> None:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from deskroll.report.terminal import console  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("kind", "name", "from"):
        table.add_column(name, no_wrap=True)
    table.add_column("what it is, or what it lacks", overflow="fold")
    shown = ""
    for each in found:
        told = each["lacks"] or each["problem"]
        kind, shown = ("" if each["kind"] == shown else each["kind"]), each["kind"]
        style = "red" if each["problem"] else "yellow" if told else ""
        table.add_row(kind, Text(each["name"]), Text(each["source"]), Text(told or each["summary"], style=style))
    console().print(table)
