"""Native getters: what a desktop's state is, for native metrics and a task's own functions.

A file that is not there is `None`, one that is too large or not what it should be is `Unreadable`. Anything else that
goes wrong rises; so does a command that was cut off (`running`). What a file says is read within limits (`bounded`).
"""

from __future__ import annotations

import base64
import binascii
import posixpath
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from deskroll.desktops.base import Desktop
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.envs.osworld.evaluate.native import appearance, bounded
from deskroll.envs.osworld.evaluate.native.readers import READERS
from deskroll.envs.osworld.evaluate.native.values import Config, File, Unreadable
from deskroll.envs.osworld.evaluate.running import LARGEST_FILE, run_whole
from deskroll.errors import DesktopError, DesktopLost, DesktopTimeout, EvaluatorError, GuestError, LeaseLost

Get = Callable[[Desktop, Config], Awaitable[object]]
_BROWSERS = ("google-chrome", "chromium")


async def _vm_command_line(desktop: Desktop, config: Config) -> object:
    """As the guest's /execute runs it, only that a string always goes through the shell."""
    command = config.get("command", "")
    if not isinstance(command, str):
        command = [str(word) for word in command]
        if str(config.get("shell", "")).lower() == "true":
            command = ["/bin/sh", "-c", *command]
    return (await run_whole(desktop, command)).output


async def _rule(desktop: Desktop, config: Config) -> object:
    if config.get("rules") is None:
        raise EvaluatorError("rule: there are no rules")
    return config["rules"]


async def _inline_file(desktop: Desktop, config: Config) -> object:
    """A file that stands in the task itself: `{"dest": name, "text": ...}`, or `base64`."""
    name = str(config.get("dest", "file"))
    if "text" in config:
        return File(name=name, data=str(config["text"]).encode())
    try:
        return File(name=name, data=base64.b64decode(str(config.get("base64", "")), validate=True))
    except binascii.Error as error:
        raise EvaluatorError(f"inline_file {name!r}: base64: {error}") from None


async def _vm_file(desktop: Desktop, config: Config) -> object:
    path = str(config.get("path", ""))
    return await _read(desktop, path, str(config.get("dest") or posixpath.basename(path)))


async def _read(desktop: Desktop, path: str, name: str) -> File | None:
    try:
        data = await _bytes(desktop, path)
    except GuestError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise
    except (DesktopLost, DesktopTimeout, LeaseLost):
        raise
    except DesktopError:  # the desktop is well; its answer was cut off
        data = None
    if data is None or len(data) > LARGEST_FILE:
        raise Unreadable(f"{name} has more than {LARGEST_FILE} bytes")
    return File(name=name, data=data)


async def _bytes(desktop: Desktop, path: str) -> bytes:
    if isinstance(desktop, GuestDesktop):  # others have no bound to give
        return await desktop.read_file(path, max_size=LARGEST_FILE)
    return await desktop.read_file(path)


async def _in_home(desktop: Desktop, path: str, name: str) -> File | None:
    home = (await run_whole(desktop, 'printf %s "$HOME"')).output.strip()
    return await _read(desktop, posixpath.join(home, path), name)


async def _chrome_appearance_mode_ui(desktop: Desktop, config: Config) -> object:
    """`light`, `dark` or `system`, as the browser says, else by the profile that was written last."""
    if (live := await appearance.live_mode(desktop)) is not None:
        return live
    places = " ".join(f"~/.config/{each}/*/Preferences ~/snap/*/common/{each}/*/Preferences" for each in _BROWSERS)
    found = (await run_whole(desktop, f"ls -1t {places} 2>/dev/null")).output.splitlines()
    file = await _read(desktop, found[0], "Preferences") if found else None
    if file is None:
        return appearance.SYSTEM
    theme = await bounded.read("json_value", file, {"at": ["browser", "theme"]})
    known = theme if isinstance(theme, dict) else {}
    return appearance.mode_of([known.get(name) for name in ("color_scheme2", "color_scheme")])


def _reader(getter: str) -> Get:
    """A getter of what a file says; `at` picks a part of that, and `~/` is the desktop's home."""

    async def get(desktop: Desktop, config: Config) -> object:
        path = str(config.get("path", ""))
        name = str(config.get("dest") or posixpath.basename(path))
        home = path.startswith("~/")
        file = await (_in_home(desktop, path[2:], name) if home else _read(desktop, path, name))
        return None if file is None else await bounded.read(getter, file, config)

    return get


GETTERS: Mapping[str, Get] = {
    "vm_command_line": _vm_command_line,
    "vm_file": _vm_file,
    "rule": _rule,
    "vlc_config": lambda desktop, config: _in_home(desktop, ".config/vlc/vlcrc", str(config.get("dest", "vlcrc"))),
    "chrome_appearance_mode_ui": _chrome_appearance_mode_ui,
    "inline_file": _inline_file,
    **{name: _reader(name) for name in READERS},
}
"""By OSWorld's names; `inline_file` and those behind it are ours alone."""
