"""Contents: everything in a simulated desktop that use makes dirty. A reset replaces it with a new one."""

from __future__ import annotations

import posixpath
import shlex
from pathlib import Path
from xml.sax.saxutils import quoteattr

import msgspec

from deskroll.desktops.base import DesktopSpec, Window
from deskroll.desktops.guest import files
from deskroll.desktops.guest.requests import BadRequest, WindowRequest
from deskroll.desktops.providers.sim.screen import Screen

HOME = "/home/user"
MAX_FILE = 16 * 1024 * 1024
"""Bytes of one file."""
_FIRST_ID = 0x400000
MAX_COMMANDS = 1000
"""Commands that are remembered."""
_STATES = "https://accessibility.ubuntu.example.org/ns/state"
_COMPONENTS = "https://accessibility.ubuntu.example.org/ns/component"


class Contents:
    """Screen, files, clipboard, windows and what was run."""

    def __init__(self, spec: DesktopSpec) -> None:
        self.screen = Screen(spec.width, spec.height)
        self.files: dict[str, bytes] = {}
        self.clipboard = ""
        self.windows: list[Window] = []
        self.commands: list[str] = []
        self._room = spec.disk_mb * 1024 * 1024

    def write_file(self, path: str, data: bytes) -> None:
        """Keep a file, within the limits of one file and of the disk."""
        name = _full(path)
        if len(data) > MAX_FILE:
            raise BadRequest(f"file_data has more than {MAX_FILE} bytes", status=413)
        used = sum(map(len, self.files.values())) - len(self.files.get(name, b""))
        if used + len(data) > self._room:
            raise BadRequest("Failed to upload file: No space left on device", status=500)
        self.files[name] = data

    def read_file(self, path: str) -> bytes:
        """The bytes of a file that was written before."""
        data = self.files.get(_full(path))
        if data is None:
            raise BadRequest("File not found", status=404)
        return data

    def remember(self, command: list[str] | str) -> str:
        """Note a command that would have run; returns it as a line."""
        line = command if isinstance(command, str) else " ".join(command)
        if len(self.commands) < MAX_COMMANDS:
            self.commands.append(line)
        return line

    def launch(self, command: list[str] | str) -> str:
        """Show a window of the program's name; returns the command as a line."""
        line = self.remember(command)
        name = _program(command)
        number, screen = self.windows[-1].id - _FIRST_ID + 1 if self.windows else 0, self.screen
        x, y = number * 32 % (screen.width // 2), 32 + number * 32 % (screen.height // 2)
        width, height = screen.width // 2, screen.height // 2 - 32
        window = Window(
            id=_FIRST_ID + number, title=name, wm_class=f"{name}.{name.capitalize()}", pid=1000 + number,
            x=x, y=y, width=width, height=height, active=False, minimized=False,
        )  # fmt: skip
        self.windows.append(window)
        screen.fill(x, y, width, height, name)
        self.activate(WindowRequest(name))
        return line

    def activate(self, wanted: WindowRequest) -> None:
        """Give the focus to the newest window of that title or class."""
        found = self._find(wanted)
        self.windows = [msgspec.structs.replace(window, active=n == found) for n, window in enumerate(self.windows)]

    def close(self, wanted: WindowRequest) -> None:
        """Take away the newest window of that title or class."""
        del self.windows[self._find(wanted)]

    def _find(self, wanted: WindowRequest) -> int:
        name = wanted.window_name
        texts = [window.wm_class if wanted.by_class else window.title for window in self.windows]
        found = [n for n, text in enumerate(texts) if (text == name if wanted.strict else name in text)]
        if not found:
            raise BadRequest(f"no window matches {name!r}", status=404)
        return found[-1]

    def open_file(self, path: str) -> None:
        """Show a window of the name of a file that was written before, or of a program."""
        if "/" in path:
            self.read_file(path)
        self.launch([path])

    def tree(self) -> str:
        """The accessibility tree: an application and a frame for each window."""
        parts = [f'<desktop-frame xmlns:st="{_STATES}" xmlns:cp="{_COMPONENTS}">']
        for window in self.windows:
            name, active = quoteattr(_printable(window.title)), str(window.active).lower()
            place = f'cp:screencoord="({window.x}, {window.y})" cp:size="({window.width}, {window.height})"'
            frame = f'<frame name={name} st:active="{active}" st:showing="true" st:visible="true" {place}/>'
            parts.append(f"<application name={name}>{frame}</application>")
        return "".join((*parts, "</desktop-frame>"))


def _full(path: str) -> str:
    return posixpath.normpath(files.expand(path, {"HOME": HOME}, Path(HOME)))


def _program(command: list[str] | str) -> str:
    """The name of the program that a command starts."""
    try:
        words = shlex.split(command) if isinstance(command, str) else command
    except ValueError:
        words = str(command).split()
    return posixpath.basename(words[0].rstrip("/"))[:200] or "program" if words else "program"


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)
