"""The parts of one X session: X server, session bus, accessibility bus, window manager.

Owns their start, their order and their logs. Guarantees: `start` returns when each part answers, not after a fixed
time; `check` raises, naming the part, as soon as one has died or was stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from dbus_fast.errors import DBusFastError
from Xlib import X, Xatom
from Xlib.display import Display
from Xlib.error import ConnectionClosedError, DisplayError, XError

from deskroll.desktops.base import signal_of
from deskroll.desktops.guest import kernel
from deskroll.desktops.guest.settings import GuestSettings
from deskroll.desktops.x11.atspi_bus import bus_address
from deskroll.errors import BootError, DeathCause, DesktopLost
from deskroll.types import Record

_ANNOUNCE_S = 15.0
AT_SPI_LAUNCHERS = ("/usr/libexec/at-spi-bus-launcher", "/usr/lib/at-spi2-core/at-spi-bus-launcher")
OPENBOX_SETTINGS = Path("/etc/xdg/openbox/rc.xml")
FOLDERS = ("Desktop", "Documents", "Downloads", "Pictures")
_TEMPLATE = Path(__file__).parent / "home"
# Read when the guest is imported: inside its sandbox there is no such folder any more.
HOME_FILES = {path.relative_to(_TEMPLATE): path.read_bytes() for path in _TEMPLATE.rglob("*") if path.is_file()}
BACKGROUND = 0x2E4057
X_SOCKETS = Path("/tmp/.X11-unix")  # noqa: S108  (where every X client looks)
_PROBE_S = 0.005
_THIS_HOST, _ANY_HOST = 256, 65535
_FIRST_PROCESS = 1
_NEEDS = {"openbox": "Xvfb", "at-spi-bus-launcher": "dbus-daemon"}
"""What a part cannot be without: it fails when that one goes, and is often gone before."""
_TOGETHER_S = 1.0
"""How long the other one may take."""
CRASHES = (
    signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSYS, signal.SIGTRAP,
    signal.SIGXCPU, signal.SIGXFSZ,
)  # fmt: skip


class Loss(Record, frozen=True):
    """A part that has died, as the guest tells its keeper."""

    message: str
    cause: DeathCause = DeathCause.UNKNOWN


class Session:
    """One desktop's X session. All parts are children of the guest."""

    def __init__(self, settings: GuestSettings) -> None:
        self.settings = settings
        self.env = dict(settings.env)
        self.home = Path(self.env["HOME"])
        self.run = Path(self.env["XDG_RUNTIME_DIR"])
        self.state = Path(settings.state)
        self.framebuffer = self.state / "fb" / "Xvfb_screen0"
        self.seconds: dict[str, float] = {}
        self.cause = DeathCause.UNKNOWN
        """Why the part that died first did so; known a moment after that."""
        self._parts: dict[str, asyncio.subprocess.Process] = {}

    async def start(self) -> None:
        """Start every part, as many at a time as their order allows."""
        began = time.monotonic()
        self._make_folders()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._timed("bus", began, self._start_buses))
                tasks.create_task(self._timed("x11", began, self._start_display))
        except ExceptionGroup as group:
            raise BootError(f"{group.exceptions[0]}{self._log_tail()}") from group
        await self._timed("a11y", began, self._announce_accessibility)

    async def _announce_accessibility(self) -> None:
        """Say on the root window where the accessibility bus is, as its launcher does where X was there before it.

        Qt 5 takes the address from there at once. Without, it asks the session bus and goes on before the answer is
        there; half of its programs then never show themselves.
        """
        try:
            async with asyncio.timeout(_ANNOUNCE_S):
                address = await bus_address(self.env["DBUS_SESSION_BUS_ADDRESS"])
                await asyncio.get_running_loop().run_in_executor(None, self._set_root_property, "AT_SPI_BUS", address)
        except (OSError, EOFError, DBusFastError, XError, DisplayError, ConnectionClosedError, DesktopLost) as error:
            raise BootError(f"the accessibility bus could not be announced: {error!r}{self._log_tail()}") from error

    def _set_root_property(self, name: str, value: str) -> None:
        with contextlib.closing(Display(self.env["DISPLAY"])) as display:
            display.screen().root.change_property(display.intern_atom(name), Xatom.STRING, 8, value.encode())
            display.sync()

    async def _timed(self, name: str, began: float, start: Callable[[], Awaitable[None]]) -> None:
        await start()
        self.seconds[name] = time.monotonic() - began

    def _make_folders(self) -> None:
        for folder in (self.home, self.run, self.state, self.state / "fb"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in FOLDERS:
            (self.home / name).mkdir(exist_ok=True)
        for path, content in HOME_FILES.items():
            (self.home / path).parent.mkdir(parents=True, exist_ok=True)
            (self.home / path).write_bytes(content)
        self._write_window_manager_settings()
        (self.state / "password").write_text(self.settings.password)
        if self.settings.sandboxed:
            # The X server makes this folder only when it is root.
            X_SOCKETS.mkdir(mode=0o777, exist_ok=True)
            X_SOCKETS.chmod(0o1777)

    def _write_window_manager_settings(self) -> None:
        """The system's own, but: each change of the keymap, which typing Unicode needs, would rebind every key."""
        if OPENBOX_SETTINGS.exists():
            wanted = "<keyboard>\n  <rebindOnMappingNotify>no</rebindOnMappingNotify>"
            folder = self.home / ".config" / "openbox"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "rc.xml").write_text(OPENBOX_SETTINGS.read_text().replace("<keyboard>", wanted, 1))

    async def _start_display(self) -> None:
        read, write = os.pipe()
        size = f"{self.settings.width}x{self.settings.height}x24"
        authority, cookie = self.home / ".Xauthority", secrets.token_bytes(16)
        _write_authority(authority, cookie)
        options = ["-screen", "0", size, "-fbdir", str(self.state / "fb"), "-displayfd", str(write)]
        name = [self.settings.display] if self.settings.display else []
        # -s 0: no screen saver; -noreset: the server lives on when its last client leaves.
        command = ["Xvfb", *name, *options, "-auth", str(authority), "-nolisten", "tcp", "-noreset", "-s", "0"]
        await self._start("Xvfb", command, pass_files=(write,))
        os.close(write)
        number = await self._first_line("Xvfb", read)
        self.env["DISPLAY"] = f":{number}"
        _write_authority(authority, cookie, self.env["DISPLAY"])
        # openbox reads the compose table at start and at each change of the keymap, which typing Unicode needs: 60 ms
        # of CPU each time for something that a window manager never uses.
        await self._start("openbox", ["env", "XCOMPOSEFILE=/dev/null", "openbox", "--sm-disable"])
        await asyncio.get_running_loop().run_in_executor(None, self._await_window_manager)

    def _await_window_manager(self) -> None:
        os.environ["XAUTHORITY"] = self.env["XAUTHORITY"]
        with contextlib.closing(Display(self.env["DISPLAY"])) as display:
            root = display.screen().root
            root.change_attributes(background_pixel=BACKGROUND)
            root.clear_area()
            # The last thing that a window manager announces when it has taken over.
            atom = display.intern_atom("_NET_CLIENT_LIST")
            while root.get_full_property(atom, X.AnyPropertyType) is None:
                self.check()
                time.sleep(_PROBE_S)

    async def _start_buses(self) -> None:
        address = self.env["DBUS_SESSION_BUS_ADDRESS"]
        await self._start("dbus-daemon", ["dbus-daemon", "--session", "--nofork", "--nosyslog", f"--address={address}"])
        while not self._bus_listens():
            self._check_part("dbus-daemon")
            await asyncio.sleep(_PROBE_S)
        launcher = next((path for path in AT_SPI_LAUNCHERS if Path(path).exists()), AT_SPI_LAUNCHERS[0])
        await self._start("at-spi-bus-launcher", [launcher, "--launch-immediately", "--a11y=1"])

    def _bus_listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self.run / "bus")) == 0

    async def _first_line(self, part: str, file: int) -> str:
        """The first line that a part writes to a pipe; raises when it ends before that."""
        loop = asyncio.get_running_loop()
        line = await loop.run_in_executor(None, _read_line, file)
        if not line:
            await self._parts[part].wait()
            self._check_part(part)
        return line

    async def _start(self, name: str, command: Sequence[str], pass_files: Sequence[int] = ()) -> None:
        log = (self.state / "session.log").open("ab")
        try:
            self._parts[name] = await asyncio.create_subprocess_exec(
                *command, env=self.env, cwd=self.home, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                pass_fds=tuple(pass_files), start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise BootError(f"cannot start {name}: {error}; `deskroll doctor` tells what to install") from error
        finally:
            log.close()

    def check(self) -> None:
        """Raise `DesktopLost`, naming the part, when one has died or does not run."""
        for name in self._parts:
            self._check_part(name)
        if self.settings.sandboxed:
            _check_alive("the sandbox's first process", _FIRST_PROCESS)

    async def until_lost(self) -> Loss:
        """Wait until a part has died, and say which one was the first."""
        ends = [asyncio.create_task(process.wait()) for process in self._parts.values()]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        name = next(name for name, part in self._parts.items() if part.returncode is not None)
        if name in _NEEDS:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._parts[_NEEDS[name]].wait(), _TOGETHER_S)
                name = _NEEDS[name]
        code = self._parts[name].returncode or 0
        self.cause = _cause_of(code, failing_counts=name not in _NEEDS)
        return Loss(message=f"{name} {_ending(code)}", cause=self.cause)

    def _check_part(self, name: str) -> None:
        process = self._parts[name]
        if process.returncode is not None:
            raise DesktopLost(f"{name} {_ending(process.returncode)}; this desktop must be replaced", self.cause)
        _check_alive(name, process.pid)

    def part_pids(self) -> dict[str, int]:
        """The process ids of the parts, as the guest sees them."""
        return {name: process.pid for name, process in self._parts.items()}

    def _log_tail(self) -> str:
        try:
            text = (self.state / "session.log").read_text(errors="replace").strip()
        except OSError:
            return ""
        return f"; the session's log ends: {text[-500:]}" if text else ""


def _check_alive(name: str, pid: int) -> None:
    letter = kernel.state(pid)
    if letter in ("T", "t"):
        raise DesktopLost(f"{name} was stopped by a signal; this desktop must be replaced")
    if letter in ("Z", "X", ""):
        raise DesktopLost(f"{name} died; this desktop must be replaced")


def _cause_of(code: int, *, failing_counts: bool) -> DeathCause:
    """Where it lies that a process ended with this code (below 0: by that signal).

    By itself, when it crashed, or failed and that is not the fault of another one. Who sent any other signal nobody
    can tell, nor who asked it to end well.
    """
    by_itself = -code in CRASHES or (failing_counts and code > 0)
    return DeathCause.INSIDE if by_itself else DeathCause.UNKNOWN


def _ending(code: int) -> str:
    if code < 0:
        return f"was killed by {signal_of(code)}"
    return f"ended with code {code}"


def _read_line(file: int) -> str:
    with os.fdopen(file) as pipe:
        return pipe.readline().strip()


def _write_authority(path: Path, cookie: bytes, display: str = "") -> None:
    """Write the cookie that the server and its clients share, as `xauth` would."""
    number = display.removeprefix(":").encode()
    # python-xlib, and so pyautogui, looks for an entry of this very host and display; Xlib takes the wildcard too.
    entries = [(_ANY_HOST, b"", b"")]
    if number:
        entries.insert(0, (_THIS_HOST, socket.gethostname().encode(), number))
    path.touch(mode=0o600)
    path.write_bytes(b"".join(_authority_entry(*entry, cookie) for entry in entries))


def _authority_entry(family: int, host: bytes, number: bytes, cookie: bytes) -> bytes:
    fields = (host, number, b"MIT-MAGIC-COOKIE-1", cookie)
    return struct.pack(">H", family) + b"".join(struct.pack(">H", len(field)) + field for field in fields)
