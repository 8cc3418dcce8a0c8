"""Names on the console: as they are written."""

from __future__ import annotations

import io
import logging

from rich.table import Table

from deskroll.conduct.log_lines import LogLines
from deskroll.host.console import PlainConsole

ODD = "agent x/wild.py:A: [red]ctor[/red] :smile: [/nothing]"


def test_neither_pictures_nor_mark_up_are_read_into_a_text() -> None:
    out = io.StringIO()
    console = PlainConsole(file=out, width=200)
    table = Table(ODD, box=None)
    table.add_row(ODD)
    console.print(table)
    console.print(ODD)
    with LogLines(console):
        logging.getLogger("deskroll.test").warning("%s", ODD)
    assert [line.count(ODD) for line in out.getvalue().splitlines()] == [1, 1, 1, 1]


def test_lines_end_where_their_text_ends() -> None:
    out = io.StringIO()
    table = Table.grid(expand=True)
    table.add_row("a", "b")
    PlainConsole(file=out, width=200).print(table, "c  ", sep="\n")
    assert [len(line) for line in out.getvalue().splitlines()] == [101, 1]
