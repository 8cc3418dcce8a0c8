"""Plugin: the one contract of everything that can be chosen by name.

A plug-in is a class made from the base of its kind: `Provider`, `Env`, `Agent`, `ModelPlugin`, `Backend`,
`ActionSpace`, `ObservationType` or `Trainer`. It has a class of settings; what it must say is abstract in the base, and
what it may say is declared there with a default, so that nobody ever asks whether a method is there. `deskroll.testing`
holds a suite for each kind, which an author runs against their own.
"""

from __future__ import annotations

import importlib
from abc import ABC
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from deskroll import config
from deskroll.errors import InputError
from deskroll.registry import BASES, Registry


class Plugin(ABC):  # noqa: B024  (what is abstract, each kind says)
    """What the bases of all kinds have in common."""

    Settings: ClassVar[type[config.Settings]] = config.Settings
    """The options that people may set."""
    code_options: ClassVar[tuple[str, ...]] = ()
    """Options that name code, as `package.module:Class` or `FILE.py:Class`: a run is held to what that code was."""

    @classmethod
    def check_installed(cls) -> None:
        """Raise `MissingDependency`, with the line to run, where something that it needs is not on this machine."""

    @classmethod
    def read_options(cls, options: Mapping[str, Any], where: str) -> config.Settings:
        """Its settings, from what a person wrote; `where` names the place in messages."""
        return config.check(cls.Settings, options, where)

    @classmethod
    def code_of(cls, options: Mapping[str, Any]) -> dict[str, str]:
        """Of these options, those that name code."""
        return {name: value for name in cls.code_options if isinstance(value := options.get(name), str)}

    @classmethod
    def advice(cls, name: str, part: object) -> str:
        """What to tell somebody who names a part that is no plug-in of this kind; empty: nothing in particular."""
        return ""


P = TypeVar("P", bound=Plugin)


def load_base(kind: str) -> type[Plugin]:
    """The class that plug-ins of a kind are made from."""
    module, _, name = BASES[kind].partition(":")
    base: type[Plugin] = getattr(importlib.import_module(module), name)
    return base


def load_plugin(kind: str, name: str, base: type[P], registry: Registry | None = None) -> type[P]:
    """The plug-in of that name; `InputError` where that is none of this kind, or half of one."""
    part = (registry or Registry()).load(kind, name)
    if advice := base.advice(name, part):
        raise InputError(f"{name!r} {advice}")
    what = f"{name!r} is not a valid {kind.replace('_', ' ')}"
    if not (isinstance(part, type) and issubclass(part, base)):
        raise InputError(
            f"{what}: it is not made from {base.__module__.removesuffix('.base')}.{base.__name__}; see docs/plugins.md"
        )
    settings: object = part.Settings
    if not (isinstance(settings, type) and issubclass(settings, config.Settings)):
        raise InputError(f"{what}: its Settings are not made from deskroll.config.Settings; see docs/plugins.md")
    if lacks := sorted(part.__abstractmethods__):
        raise InputError(f"{what}: it has no {', no '.join(lacks)}; see docs/plugins.md")
    return part
