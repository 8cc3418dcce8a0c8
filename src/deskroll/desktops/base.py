"""Desktop, Provider and DesktopSpec: what every kind of desktop is and what every provider does.

A provider boots machines and says where they answer (`Address`); whoever holds the address talks to the desktop
directly through a `Desktop`. Nothing here knows any particular provider.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from deskroll.actions import Action
from deskroll.types import Record


class SettleOutcome(enum.StrEnum):
    """How the wait after an action ended."""

    SETTLED = "settled"
    """The screen changed and then stood still."""
    CAPPED = "capped"
    """It was still changing when the longest wait was over."""
    NO_REACTION = "no_reaction"
    """Nothing changed in the time in which programs react."""
    SKIPPED = "skipped"
    """No settling was asked for."""


class Settle(Record, frozen=True):
    """How long to wait for the screen after actions, in seconds."""

    react: float = 0.45
    """The longest wait for a first change."""
    quiet: float = 0.15
    """The screen counts as settled after this long without a change."""
    cap: float = 2.0
    """The longest wait in all (`sleep_after_execution`)."""


class Observe(Record, frozen=True):
    """What a step brings back."""

    screenshot: bool = True
    image: str = "png"
    """`png` or `jpeg`."""
    tree: bool = False
    """The accessibility tree, as OSWorld's XML."""
    terminal: bool = False
    """The text of the foremost terminal."""


class ActionResult(Record, frozen=True):
    """What became of one action."""

    ok: bool = True
    output: str = ""
    """What a script printed."""
    error: str = ""
    """Why the action was refused or failed: for the agent to read."""


class StepResult(Record, frozen=True):
    """What came of one step."""

    results: tuple[ActionResult, ...] = ()
    screenshot: bytes | None = None
    tree: str | None = None
    terminal: str | None = None
    settle: SettleOutcome = SettleOutcome.SKIPPED
    seconds: dict[str, float] = msgspec.field(default_factory=dict)
    """Duration by part: act, settle, look, tree."""


class RunResult(Record, frozen=True):
    """What a program that ran in a desktop left behind."""

    returncode: int
    output: str = ""
    error: str = ""


class Window(Record, frozen=True):
    """One window on a screen; positions are those of its contents, in screen pixels."""

    id: int
    title: str
    wm_class: str
    """Instance and class as wmctrl writes them: `mousepad.Mousepad`."""
    pid: int | None
    x: int
    y: int
    width: int
    height: int
    active: bool
    minimized: bool


class DesktopSpec(Record, frozen=True):
    """What a desktop must be like. Two desktops of equal spec can stand in for each other."""

    width: int = 1920
    height: int = 1080
    network: bool = False
    """Whether programs in it reach the network; loopback is always there."""
    client_password: str = "password"  # noqa: S105  (OSWorld's own, for sudo inside the desktop)
    memory_mb: int = 4096
    """Memory that all programs in it may use together."""
    processes: int = 1024
    """Processes and threads that may run in it."""
    disk_mb: int = 2048
    """Room for files in its home and temporary folders."""
    snapshot: str = ""
    """Name of the state to start from, for providers that have several."""


class Address(Record, frozen=True):
    """Where a desktop's guest answers."""

    id: str
    endpoint: str
    """`unix:/path/to.sock` or `http://host:port`."""
    provider: str = ""
    token: str = ""
    """Bearer token that the guest wants; empty for none."""
    width: int = 1920
    height: int = 1080

    def __repr__(self) -> str:
        return f"Address(id={self.id!r}, endpoint={self.endpoint!r})"


class Desktop(Protocol):
    """One machine with a screen. Every call has a deadline and raises a `DesktopError` that names the desktop."""

    @property
    def id(self) -> str:
        """The desktop's id, as errors and records name it."""

    async def screenshot(self, image: str = "png") -> bytes:
        """Look at the screen now."""

    async def accessibility_tree(self) -> str:
        """The accessibility tree as OSWorld's XML."""

    async def step(
        self, actions: Sequence[Action], *, settle: Settle | None = Settle(), observe: Observe = Observe()
    ) -> StepResult:
        """Act, wait until the screen has settled, look: in one round trip where the guest can."""

    async def run(self, command: Sequence[str] | str, *, timeout: float = 120.0) -> RunResult:
        """Run a program to its end; a string goes through the shell."""

    async def launch(self, command: Sequence[str] | str) -> None:
        """Start a program and leave it running."""

    async def read_file(self, path: str) -> bytes:
        """Read a file of the desktop."""

    async def write_file(self, path: str, data: bytes) -> None:
        """Write a file in the desktop, making its folder."""

    def forward(self, port: int) -> AbstractAsyncContextManager[tuple[str, int]]:
        """Reach a TCP port inside the desktop at the (host, port) that this yields."""

    async def check(self) -> None:
        """Raise unless the guest answers and every part of the desktop is alive."""

    async def close(self) -> None:
        """Let go of connections; the desktop itself lives on."""


class Provider(Protocol):
    """Boots and stops desktops of one kind. Used with `async with`; leaving stops everything it booted."""

    name: str

    async def __aenter__(self) -> Provider: ...

    async def __aexit__(self, *exc: object) -> None: ...

    async def boot(self, spec: DesktopSpec) -> Address:
        """Start a desktop; returns when it can be used. Raises `BootError`, leaving nothing behind."""

    async def stop(self, desktop_id: str) -> None:
        """End a desktop and remove everything that it was. Unknown ids are no error: it is gone."""
