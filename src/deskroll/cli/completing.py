"""What a shell offers for values at `<TAB>`: names of parts, runs that are here, tasks of a run.

Guarantees: where something cannot be read there is nothing to offer, and no error; a name that a shell could take for
anything but a name is not offered. Nothing is imported before somebody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deskroll.errors import DeskrollError, plain

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]
_RESULTS = "results"
"""Where runs are kept, unless somebody wants them elsewhere."""


def complete_part(kind: str) -> Complete:
    """Names of the parts of a kind, plug-ins included; and files, for one's own."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from deskroll.registry import Registry  # noqa: PLC0415

        return _offered((entry.name for entry in Registry().entries(kind)), incomplete, files="file")

    return complete


def complete_kind(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Kinds of plug-in."""
    from deskroll.registry import KINDS  # noqa: PLC0415

    return _offered(KINDS, incomplete)


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Folders of runs: in the folder that is being written, or where runs usually are; and any folder."""
    folder = Path(incomplete.rpartition("/")[0] or "/") if "/" in incomplete else Path(_RESULTS)
    try:
        runs = sorted(str(each.parent) for each in folder.glob("*/run.json"))
    except OSError:
        runs = []
    return _offered(runs, incomplete, files="dir")


def complete_task(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of the tasks of which the run that was named has episodes."""
    from deskroll.store import Run, find_run  # noqa: PLC0415

    try:
        entries = Run.open(find_run(ctx.params["run"], newest=True)).index.entries
    except (DeskrollError, OSError):
        return []
    return _offered(sorted({key.task for key in entries}), incomplete)


def _offered(names: Iterable[str], incomplete: str, files: str = "") -> list[CompletionItem]:
    from click.shell_completion import CompletionItem  # noqa: PLC0415

    found = [CompletionItem(name) for name in names if name.startswith(incomplete) and plain(name, len(name)) == name]
    return found or ([CompletionItem(incomplete, type=files)] if files else [])
