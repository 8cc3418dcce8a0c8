"""One kind of desktop each; the core knows them by their name in the registry only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, cast

from deskroll.desktops.base import Provider
from deskroll.errors import InputError
from deskroll.events import EventSink
from deskroll.registry import Registry


class ProviderClass(Protocol):
    """What the registry holds for a provider."""

    def from_options(self, options: Mapping[str, str], sink: EventSink | None = None) -> Provider:
        """Make one from options as a person writes them; `InputError` names what is wrong and what is allowed."""


def make_provider(name: str, options: Mapping[str, str] | None = None, sink: EventSink | None = None) -> Provider:
    """The provider of that name, with its own options."""
    part = Registry().load("provider", name)
    if not hasattr(part, "from_options"):
        raise InputError(f"{name!r} is no provider of desktops: it has no from_options")
    kind = cast("ProviderClass", part)
    return kind.from_options(options or {}, sink)
