"""`deskroll tasks`: list tasks, show one, and say what they need and whether they can run here."""

from __future__ import annotations

import functools
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from deskroll.cli.options import print_json
from deskroll.cli.places import LocalPath
from deskroll.errors import plain
from deskroll.report.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.console import Console
    from rich.table import Table

    from deskroll.cli.tasks_check import Checked, Totals
    from deskroll.tasks.needs import Needs
    from deskroll.types import Task

_FEW = 25
"""Up to so many tasks are shown one by one, and so many lines of a total."""
_NUMBERS = ("TASKS", "FILES", "RUN HERE")
_root = click.option("--root", type=LocalPath(), help="The folder of a suite's <domain>/<id>.json. Default: examples.")
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")


@click.group(epilog="\b\nExamples:\n  deskroll tasks ls test_all.json --app gimp\n  deskroll tasks check test_all.json")
def tasks() -> None:
    """List tasks, show one, see what they need and whether they can run here.

    TASKS is a JSON or JSONL file, a suite file of OSWorld's, a folder of task files, or suite:NAME.
    """


def _given(command: Callable[..., None]) -> Callable[..., None]:
    """Which tasks: the argument, and what selects among them; the command gets them as `found`."""

    @functools.wraps(command)
    def loading(
        *, source: Path, root: Path | None, domains: tuple[str, ...], apps: tuple[str, ...], ids: tuple[str, ...],
        **others: Any,
    ) -> None:  # fmt: skip
        from deskroll.tasks import Selection, load_tasks  # noqa: PLC0415

        only = Selection(domains=domains, apps=apps, ids=ids)
        command(found=load_tasks(source, root=root, only=only), **others)

    decorated: Callable[..., None] = loading
    for decorate in (
        _root,
        click.option("--task", "ids", multiple=True, metavar="ID", help="Only this task. May be repeated."),
        click.option("--app", "apps", multiple=True, help="Only tasks that name this app. May be repeated."),
        click.option("--domain", "domains", multiple=True, help="Only this domain. May be repeated."),
        click.argument("source", metavar="TASKS", type=LocalPath()),
    ):
        decorated = decorate(decorated)
    return decorated


@tasks.command(epilog="\b\nExample:\n  deskroll tasks ls test_all.json --domain chrome --domain os")
@_given
@_json
def ls(*, found: list[Task], as_json: bool) -> None:
    """List tasks: id, domain, apps, and what is to be done."""
    from deskroll.tasks.select import related_apps  # noqa: PLC0415

    if as_json:
        listed = [
            {"id": task.id, "domain": task.domain, "apps": related_apps(task), "instruction": task.instruction}
            for task in found
        ]
        print_json(listed, pretty=True)
        return
    rows = [("ID", "DOMAIN", "APPS", "INSTRUCTION")]
    rows += [(task.id, task.domain or "-", ", ".join(related_apps(task)) or "-", task.instruction) for task in found]
    _print_columns([tuple(plain(cell, 300) for cell in row) for row in rows])
    click.echo(f"\n{counted(len(found), 'task')}")


@tasks.command(epilog="\b\nExample:\n  deskroll tasks show test_all.json 7767eef2")
@click.argument("source", metavar="TASKS", type=LocalPath())
@click.argument("task_id", metavar="ID")
@_root
@_json
def show(*, source: Path, task_id: str, root: Path | None, as_json: bool) -> None:
    """Show one task whole, with what it needs. ID may be the first characters of an id."""
    from deskroll.tasks import load_tasks  # noqa: PLC0415
    from deskroll.tasks.needs import needs_of  # noqa: PLC0415
    from deskroll.tasks.select import find_task, related_apps  # noqa: PLC0415

    task = find_task(load_tasks(source, root=root), task_id, str(source))
    needs = needs_of(task)
    if as_json:
        print_json({**msgspec.to_builtins(task), "needs": needs}, pretty=True)
        return
    table = _table("", "")
    table.show_header = False
    table.add_row("id", _shown(task.id))
    table.add_row("domain", _shown(task.domain or "-"))
    table.add_row("apps", _shown(", ".join(related_apps(task)) or "-"))
    table.add_row("instruction", _shown(task.instruction))
    if task.answer is not None:
        table.add_row("answer", _shown(task.answer))
    for n, step in enumerate(task.setup):
        table.add_row(f"set-up {n}", f"{_shown(str(step.get('type')), 40)}  {_compact(step.get('parameters', {}))}")
    for name, value in task.evaluator.items():
        table.add_row(_shown(f"evaluator.{name}", 60), _compact(value))
    for name, value in task.metadata.items():
        table.add_row(_shown(name, 60), _compact(value))
    table.add_row("needs", _needs_line(needs))
    _console().print(table)


@tasks.command(epilog="\b\nExamples:\n  deskroll tasks check test_all.json --domain gimp\n"
               "  deskroll tasks check test_all.json --offline --json")  # fmt: skip
@_given
@click.option("--provider", default="auto", help="What kind of desktops. Default: auto.")
@click.option("--env", default="osworld", help="The environment of tasks that name none. Default: osworld.")
@click.option("--cache", "cache_dir", default="cache", type=LocalPath(),
              help="Files that were fetched before, kept as OSWorld does. Default: cache.")  # fmt: skip
@click.option("--offline", is_flag=True, help="Ask no host whether it answers: only the cache counts.")
@click.option("--set", "overrides", multiple=True, metavar="env_options.NAME=VALUE",
              help="An option of the environment, as the run will have it, e.g. an account.")  # fmt: skip
@_json
def check(
    *, found: list[Task], provider: str, env: str, cache_dir: Path, offline: bool, overrides: tuple[str, ...],
    as_json: bool,
) -> None:  # fmt: skip
    """Say what tasks need, whether they can run on this machine, and why not.

    Nothing is started or downloaded; hosts are asked for a connection, no more. Exit code 0: all can run; 1: some
    cannot.
    """
    from deskroll.cli.tasks_check import Options, chosen, survey, totals  # noqa: PLC0415
    from deskroll.config import load  # noqa: PLC0415
    from deskroll.tasks import tasks_folder  # noqa: PLC0415

    folder = tasks_folder(click.get_current_context().params["source"])
    options = load(Options, overrides=overrides, name="--set").env_options
    checked = survey(found, folder, provider, env, cache_dir, offline=offline, options=options)
    whole = totals(checked, chosen(provider))
    if as_json:
        print_json({"totals": whole, "tasks": checked}, pretty=True)
    else:
        _print_checked(checked, whole)
    raise click.exceptions.Exit(0 if whole.can_run == whole.tasks else 1)


def _print_checked(checked: list[Checked], whole: Totals) -> None:
    console = _console()
    for each in checked if len(checked) <= _FEW else ():
        click.echo(f"{'yes' if each.can_run else 'no ':<3}  {_shown(each.id)}  needs: {_needs_line(each.needs)}")
        for line in (*each.why_not, *(f"note: {note}" for note in each.notes)):
            click.echo(f"       {_shown(line)}")
    domains = _table("DOMAIN", "TASKS", "RUN HERE")
    for name, (count, running) in whole.by_domain.items():
        domains.add_row(_shown(name or "-"), f"{count:,}", f"{running:,}")
    console.print(domains)
    for title, counts in (
        ("NEED", whole.needs),
        ("APP", whole.apps),
        ("FILES FROM", whole.files),
        ("WHY NOT", whole.why_not),
        ("NOTE", whole.notes),
    ):
        _print_counts(console, title, {name: count for name, count in counts.items() if count})
    if whole.snapshots:
        named = sum(whole.snapshots.values())
        console.print(
            f"\n{counted(named, 'task')} name a snapshot, which is not used: a run has its own (snapshot_name)."
        )
    console.print(f"\n{whole.can_run:,} of {counted(whole.tasks, 'task')} can run here, on provider {whole.provider}.")
    if whole.install:
        _print_install(whole)
    if len(checked) > _FEW:
        console.print("Task by task: --json, or select with --domain, --app, --task.")


def _print_install(whole: Totals) -> None:
    """Not through the console, which would fold the line: it is to be copied."""
    more = f"Debian has programs with which {counted(whole.with_packages, 'more task')} could run"
    lacking = "Debian has programs that are missing; the tasks that need them lack something else, too"
    click.echo(f"{more if whole.with_packages else lacking}. As root:\n\n    {whole.install}\n")


def _print_counts(console: Console, title: str, counts: Mapping[str, int]) -> None:
    if not counts:
        return
    table = _table(title, "TASKS" if title != "FILES FROM" else "FILES")
    for name, count in list(counts.items())[:_FEW]:
        table.add_row(_shown(name), f"{count:,}")
    if len(counts) > _FEW:
        table.add_row(f"and {len(counts) - _FEW:,} more", "")
    console.print()
    console.print(table)


def _needs_line(needs: Needs) -> str:
    said = [str(kind) for kind in needs.kinds]
    if needs.downloads:
        hosts = ", ".join(sorted({each.host for each in needs.downloads}))
        said.append(f"{counted(len(needs.downloads), 'file')} from {hosts}")
    return _shown(", ".join([*said, *needs.apps]) or "nothing")


def _shown(text: str, longest: int = 2000) -> str:
    return plain(text, longest, keep="\n")


def _compact(value: object) -> str:
    return _shown(value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _print_columns(rows: list[tuple[str, ...]]) -> None:
    """Columns of which all but the last are whole, or nearly; on a terminal the last one ends with the line."""
    widths = [min(max(len(row[n]) for row in rows), 40) for n in range(len(rows[0]) - 1)]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else 160
    room = max(room - sum(widths) - 2 * len(widths), 20)
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)]
        cut = row[-1] if len(row[-1]) <= room else f"{row[-1][: room - 3]}..."
        click.echo("  ".join([*cells, cut]).rstrip())


def _table(*columns: str) -> Table:
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold", justify="right" if name in _NUMBERS else "left")
    return table


def _console() -> Console:
    from deskroll.host.console import PlainConsole  # noqa: PLC0415

    return PlainConsole(highlight=False)
