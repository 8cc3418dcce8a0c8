"""Numbers on the command line: the digits 0 to 9, as in settings; Python's own `int` takes those of every script."""

from __future__ import annotations

from typing import Any

import click


class Whole(click.types.IntParamType):
    """A whole number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; a usage error where it is none."""
        return super().convert(_plain(value, param, ctx), param, ctx)


class WholeRange(click.IntRange):
    """A whole number between bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; a usage error where it is none."""
        return super().convert(_plain(value, param, ctx), param, ctx)


class Real(click.types.FloatParamType):
    """A number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; a usage error where it is none."""
        return super().convert(_plain(value, param, ctx), param, ctx)


class RealRange(click.FloatRange):
    """A number between bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; a usage error where it is none."""
        return super().convert(_plain(value, param, ctx), param, ctx)


def _plain(value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
    """The text, where no setting would refuse its digits."""
    if isinstance(value, str) and not value.isascii():
        raise click.BadParameter(f"{value!r} is no number: write it with the digits 0 to 9", ctx, param)
    return value
