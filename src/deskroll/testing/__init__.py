"""Contract suites: what every plug-in of a kind must do, for its author to run against theirs.

    pytest --pyargs deskroll.testing --provider my_package.mine:Mine
    pytest --pyargs deskroll.testing --env safe.py:SafeEnv --plugin-tasks tasks.jsonl
    pytest --pyargs deskroll.testing --agent mine --plugin-options '{"max_images": 3}'
    pytest --pyargs deskroll.testing --trainer mine.py:Mine --plugin-checkpoint models/tiny

A plug-in is named as everywhere: by its short name, a path or a file; a flag may be given several times. Needs pytest
and nothing else beside what the plug-in itself needs. docs/plugins.md says what each suite wants to know.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec

from deskroll.plugins import Plugin, load_base, load_plugin

LONGEST_S = 300.0
"""What a single check may take: a boot in a cloud takes minutes."""
P = ParamSpec("P")


@dataclass(frozen=True)
class Chosen:
    """The plug-in that is under test."""

    kind: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)
    tasks: Path | None = None
    """A file of tasks for it."""
    example: dict[str, Any] | None = None
    """Arguments of a call that it must understand (action spaces)."""
    checkpoint: Path | None = None
    """A folder with a model for it (trainers)."""

    def load(self) -> Any:
        """Its class."""
        found: type[Plugin] = load_plugin(self.kind, self.name, load_base(self.kind))
        return found

    def settings(self) -> Any:
        """Its settings, from the options that were given."""
        return self.load().read_options(self.options, f"options of {self.kind} {self.name}")


def awaited(check: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A check that is a coroutine, as pytest calls one: run to its end, within a time that is long for any."""

    @functools.wraps(check)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def limited() -> None:
            async with asyncio.timeout(LONGEST_S):
                await check(*args, **kwargs)

        asyncio.run(limited())

    return run
