"""Flags that stand for settings: their type, help and default are the setting's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args, get_origin

import click

from deskroll.cli.completing import Complete
from deskroll.cli.numbers import Real, Whole
from deskroll.field_docs import describe

if TYPE_CHECKING:
    from pydantic import BaseModel

    from deskroll.config import Override


_NUMBERS: Mapping[object, Whole | Real] = {int: Whole(), float: Real()}


@dataclass(frozen=True)
class SettingFlag:
    """One flag."""

    setting: str
    """The setting that it stands for: `limits.max_turns`."""
    name: str = ""
    """The flag, where it is not called like the setting."""
    metavar: str | None = None
    complete: Complete | None = None

    @property
    def flag(self) -> str:
        """As it is typed."""
        return self.name or "--" + self.setting.rpartition(".")[2].replace("_", "-")

    @property
    def parameter(self) -> str:
        """As the command's function gets it."""
        return self.flag.removeprefix("--").replace("-", "_")

    def option(self, model: type[BaseModel]) -> Callable[[Any], Any]:
        """The option, for click."""
        field = describe(model, self.setting)
        several = get_origin(field.kind) is tuple and get_args(field.kind)[0] is str
        kind = get_args(field.kind)[0] if several else field.kind
        default = f" Default: {field.shown_default}." if field.shown_default else ""
        switch = kind is bool
        return click.option(
            f"{self.flag}/--no-{self.flag.removeprefix('--')}" if switch else self.flag,
            self.parameter,
            default=None,
            type=None if switch else _NUMBERS.get(kind, click.STRING),
            multiple=several,
            metavar=self.metavar,
            shell_complete=self.complete,
            help=f"{field.text}{' May be repeated.' if several else ''}{default}",
        )


def setting_flags(model: type[BaseModel], flags: Sequence[SettingFlag]) -> Callable[[Any], Any]:
    """A decorator that gives a command these flags, in their order."""

    def decorate(command: Any) -> Any:
        for flag in reversed(flags):
            command = flag.option(model)(command)
        return command

    return decorate


def overrides(flags: Sequence[SettingFlag], given: dict[str, Any]) -> list[Override]:
    """What was given by flags, as settings."""
    found: list[Override] = []
    for flag in flags:
        value = given[flag.parameter]
        if value not in (None, ()):
            found.append((flag.setting, list(value) if isinstance(value, tuple) else value, flag.flag))
    return found
