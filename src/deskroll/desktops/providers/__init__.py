"""One kind of desktop each; the core knows them by their name in the registry only."""

from __future__ import annotations

from collections.abc import Mapping

from deskroll.desktops.providers.base import Provider
from deskroll.events import EventSink
from deskroll.plugins import load_plugin


def make_provider(name: str, options: Mapping[str, str] | None = None, sink: EventSink | None = None) -> Provider:
    """The provider of that name, with its own options."""
    kind = load_plugin("provider", name, Provider)
    settings = kind.read_options(options or {}, f"provider_options (provider {name})")
    kind.check_installed()
    return kind(settings, sink=sink)
