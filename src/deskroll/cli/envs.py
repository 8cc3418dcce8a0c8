"""`deskroll envs`: the environments that can be chosen, and the tools that each gives an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from deskroll.cli.options import print_json

if TYPE_CHECKING:
    from deskroll.registry import Entry


@click.group(epilog="\b\nExample:\n  deskroll envs ls")
def envs() -> None:
    """See which environments there are."""


@envs.command(epilog="\b\nExamples:\n  deskroll envs ls\n  deskroll envs ls --json")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output, with options and tools whole.")
def ls(as_json: bool) -> None:
    """List the environments: deskroll's own and those of plug-ins, with their tools."""
    from deskroll.registry import Registry  # noqa: PLC0415

    described = [_described(entry) for entry in Registry().entries("env")]
    if as_json:
        print_json(described, pretty=True)
        return
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from deskroll.report.terminal import console  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("environment", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    table.add_column("tools", overflow="fold")
    for each in described:
        tools = [f"{tool.name}({', '.join(tool.parameters.get('properties', {}))})" for tool in each["tools"]]
        table.add_row(each["name"], Text(each["problem"] or each["summary"]), Text("\n".join(tools) or "-"))
    console().print(table)


def _described(entry: Entry) -> dict[str, Any]:
    from deskroll.envs import env_kind  # noqa: PLC0415
    from deskroll.errors import DeskrollError  # noqa: PLC0415

    found = {"name": entry.name, "summary": entry.summary, "target": entry.target}
    try:
        kind = env_kind(entry.name)
        settings = kind.Settings()
        return {
            **found,
            "tools": list(kind.offered(settings)),
            "options": settings.model_dump(mode="json"),
            "problem": "",
        }
    except (DeskrollError, ImportError) as error:  # one plug-in that is broken hides no other
        return {**found, "tools": [], "options": {}, "problem": str(error)}
