"""Paths on the command line: no shell expands the `~` of `--option=~/folder`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from deskroll.host.home import expand_home


class LocalPath(click.Path):
    """A path of this machine, with `~` expanded; it comes as a Path."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(path_type=Path, **attributes)

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Expand, then check."""
        return super().convert(expand_home(value) if isinstance(value, str) else value, param, ctx)
