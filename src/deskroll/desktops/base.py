"""Desktop, DesktopSpec and Capabilities: what every kind of desktop is. How they come about: `providers/base.py`.

A provider boots machines and says where they answer (`Address`); whoever holds the address talks to the desktop
directly through a `Desktop`. What a provider can and cannot do it declares (`Capabilities`), and the pool acts upon
that. Nothing here knows any particular provider.
"""

from __future__ import annotations

import enum
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from deskroll.actions import Action
from deskroll.errors import DeathCause, InputError, plain
from deskroll.types import Record


class SettleOutcome(enum.StrEnum):
    """How the wait after an action ended."""

    SETTLED = "settled"
    """The screen changed and then stood still."""
    CAPPED = "capped"
    """When the longest wait was over it was still changing, or a program had not yet read its input."""
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

    def after(self, actions: Sequence[Action]) -> Settle:
        """The rules for a step: where nothing is done, no reaction is waited for."""
        return self if actions else msgspec.structs.replace(self, react=min(self.react, self.quiet))


class Observe(Record, frozen=True):
    """What a step brings back."""

    screenshot: bool = True
    image: str = "png"
    """`png` or `jpeg`."""
    tree: bool = False
    """The accessibility tree, as OSWorld's XML."""
    shown_only: bool = False
    """Whether of the tree only what shows is wanted, without actions and values: much sooner there. A guest that cannot
    tell brings all of it."""
    terminal: bool = False
    """The text of the foremost terminal."""


class ActionResult(Record, frozen=True):
    """What became of one action."""

    ok: bool = True
    output: str = ""
    """What a script printed."""
    error: str = ""
    """Why the action was refused or failed: for the agent to read."""


async def act_in_turn(
    actions: Sequence[Action], act: Callable[[Action], Awaitable[ActionResult]]
) -> list[ActionResult]:
    """Perform one action after the other; those after one that failed are not performed."""
    results: list[ActionResult] = []
    for action in actions:
        if results and not results[-1].ok:
            results.append(ActionResult(ok=False, error="not performed, because an action before it failed"))
        else:
            results.append(await act(action))
    return results


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

    @property
    def signal(self) -> str:
        """The signal that ended it; empty where it ended by itself."""
        return signal_of(self.returncode)

    def as_action(self) -> ActionResult:
        """The same as what became of an action: the end of the error, where the program failed."""
        ok = self.returncode == 0
        return ActionResult(ok=ok, output=self.output, error="" if ok else self.error[-2000:])


_OF_SHELLS = {
    128 + each: each.name
    for each in (
        signal.SIGINT, signal.SIGQUIT, signal.SIGILL, signal.SIGTRAP, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE,
        signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGXCPU, signal.SIGSYS,
    )
}  # fmt: skip
"""How shells tell that a signal ended what they ran. Not 129, which is git's for a wrong call, nor 141: who reads of a
pipe and has read enough ends who writes to it."""


def signal_of(returncode: int) -> str:
    """The signal that a program's status tells of, its own or one that its shell passes on; else empty."""
    if returncode >= 0:
        return _OF_SHELLS.get(returncode, "")
    try:
        return signal.Signals(-returncode).name
    except ValueError:
        return f"signal {-returncode}"


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


_OF_TASKS = ("snapshot", "proxy", "fixed_ip")
"""What of a desktop a single task may ask for."""
WIDTHS, HEIGHTS = (160, 7680), (120, 4320)
"""The smallest and largest screens, in pixels."""


class DesktopSpec(Record, frozen=True, forbid_unknown_fields=True):
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
    proxy: bool = False
    """Whether its programs reach the network through the provider's proxy."""
    fixed_ip: bool = False
    """Whether it must be a desktop whose public address never changes."""

    def overridden(self, env_config: Mapping[str, object]) -> DesktopSpec:
        """This spec with what a task's own `env_config` asks for; `InputError` where that is nothing a task may set."""
        if unknown := [name for name in env_config if name not in _OF_TASKS]:
            raise InputError(
                f"env_config.{plain(str(unknown[0]), 80)}: there is no such field; allowed: {', '.join(_OF_TASKS)}; "
                f"what all tasks of a run share is set for the run (env_options)"
            )
        try:
            return msgspec.convert({**msgspec.to_builtins(self), **env_config}, DesktopSpec)
        except msgspec.ValidationError as error:
            raise InputError(f"env_config: {error}; snapshot is a name, proxy and fixed_ip are true or false") from None


class Recycling(enum.StrEnum):
    """How a used desktop becomes a clean one."""

    REVERT = "revert"
    """The machine stays and goes back to a snapshot."""
    REPLACE = "replace"
    """It is stopped, and another one is booted."""


class Fence(enum.StrEnum):
    """What keeps a late holder away from a desktop that is no longer its own."""

    HARD = "hard"
    """The address of a lease stops working when the desktop is recycled, whatever its holder does."""
    TIMED = "timed"
    """The address stays the same: the holder stops by itself in time, and a lease that ends in any other way than by
    its holder's release costs the machine."""


class Capabilities(Record, frozen=True):
    """What a provider can do."""

    recycling: Recycling = Recycling.REPLACE
    revertible: tuple[str, ...] = ()
    """Fields of a spec that a revert can change; all others take another machine."""
    fence: Fence = Fence.TIMED
    boot_s: float = 30.0
    """Usual time from nothing to a desktop that can be used, in seconds."""
    reset_s: float = 30.0
    """Usual time that recycling takes, in seconds."""
    usd_per_hour: float = 0.0
    """Price of one desktop."""
    host_only: bool = False
    """Whether desktops can be reached from the host of their provider only."""
    most: int | None = None
    """How many of them there is room for, about; None: nobody knows."""
    adopts: bool = False
    """Whether desktops outlive their owner, so that another one can take them over."""


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
    simulated: bool = False
    """Whether no program runs there: what is done to it leaves nothing that could be judged."""

    def __repr__(self) -> str:
        return f"Address(id={self.id!r}, endpoint={self.endpoint!r})"


class Desktop(Protocol):
    """One machine with a screen. Every call has a deadline and raises a `DesktopError` that names the desktop."""

    @property
    def id(self) -> str:
        """The desktop's id, as errors and records name it."""

    @property
    def simulated(self) -> bool:
        """Whether no program runs there: what is done to it leaves nothing that could be judged."""

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

    async def open_file(self, path: str) -> None:
        """Open a file in its program; returns when its window is there."""

    async def activate_window(self, name: str, *, strict: bool = False, by_class: bool = False) -> None:
        """Bring the window of that title (or class) to the front; a `GuestError` of status 404 when there is none."""

    async def close_window(self, name: str, *, strict: bool = False, by_class: bool = False) -> None:
        """Ask the window of that title (or class) to close; a `GuestError` of status 404 when there is none."""

    async def read_file(self, path: str) -> bytes:
        """Read a file of the desktop."""

    async def write_file(self, path: str, data: bytes, *, timeout: float | None = None) -> None:
        """Write a file in the desktop, making its folder."""

    def forward(self, port: int) -> AbstractAsyncContextManager[tuple[str, int]]:
        """Reach a TCP port inside the desktop at the (host, port) that this yields."""

    async def start_recording(self, fps: int = 5) -> None:
        """Begin a video of the screen, of so many pictures a second where the guest lets one choose."""

    async def end_recording(self) -> bytes:
        """End the video and return it (mp4)."""

    async def check(self) -> None:
        """Raise unless the guest answers and every part of the desktop is alive."""

    async def close(self) -> None:
        """Let go of connections; the desktop itself lives on."""


TellLost = Callable[[str, str, DeathCause], None]
"""Takes the id of a desktop that died, the reason, and where its cause lies."""
