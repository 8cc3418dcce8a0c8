"""The guest process: from a fork inside the sandbox to a server that answers.

Runs in a fork of a process that imported everything already; inside the sandbox there is no deskroll to import, so
`warm_up` must have touched every module that is loaded lazily.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import pkgutil
import socket
import sys
import time
from pathlib import Path

import msgspec
from aiohttp import web

from deskroll.desktops.guest import server
from deskroll.desktops.guest.machine import Machine
from deskroll.desktops.guest.marks import end_marked
from deskroll.desktops.guest.session import Session
from deskroll.desktops.guest.settings import GuestSettings
from deskroll.errors import DeskrollError

# Modules that the libraries we use import on first use only.
_LAZY = (
    "encodings.idna", "encodings.utf_16", "encodings.latin_1", "encodings.unicode_escape", "encodings.punycode",
    "PIL.PngImagePlugin", "PIL.JpegImagePlugin", "PIL.BmpImagePlugin", "PIL.GifImagePlugin", "PIL.WebPImagePlugin",
    "PIL.TiffImagePlugin", "multiprocessing", "concurrent.futures.thread", "asyncio.unix_events", "stringprep",
    "Xlib.protocol.display", "Xlib.support.unix_connect", "Xlib.xauth", "uuid", "mimetypes",
    "linecache", "traceback", "tokenize", "numpy.lib.stride_tricks", "json", "zoneinfo", "_strptime", "locale",
)  # fmt: skip
# Packages of which any module may be.
_LAZY_PACKAGES = ("av", "dbus_fast.aio")


def warm_up() -> None:
    """Import what would otherwise be imported on first use."""
    for name in _LAZY:
        importlib.import_module(name)
    for package in _LAZY_PACKAGES:
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    # python-xlib imports its extensions when a display is opened.
    for module in importlib.import_module("Xlib.ext").__all__:
        importlib.import_module(f"Xlib.ext.{module}")


def run(settings: GuestSettings, listen_file: int, speak: int) -> None:
    """Serve until killed. Says one line of JSON on `speak`: its timings, or why it cannot run."""
    os.setsid()
    os.umask(0o022)
    os.environ.clear()
    os.environ.update(settings.env)
    _close_files(keep={listen_file, speak})
    if sys.version_info < (3, 12):
        # From 3.12 on this is the default; before, each child would cost a thread.
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(settings, listen_file, speak))


def _close_files(keep: set[int]) -> None:
    """Close every inherited descriptor; nothing of the host's may be reachable from inside."""
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for entry in list(Path("/proc/self/fd").iterdir()):
        file = int(entry.name)
        if file > 2 and file not in keep:
            with contextlib.suppress(OSError):
                os.close(file)


async def _serve(settings: GuestSettings, listen_file: int, speak: int) -> None:
    began = time.monotonic()
    session = Session(settings)
    try:
        await session.start()
        machine = Machine(session)
        await machine.open()
    except DeskrollError as error:
        os.write(speak, msgspec.json.encode(str(error)) + b"\n")
        return
    runner = web.AppRunner(server.create_app(machine, token=settings.token), access_log=None)
    await runner.setup()
    await web.SockSite(runner, socket.socket(fileno=listen_file), backlog=128).start()
    os.write(speak, msgspec.json.encode({**session.seconds, "guest": time.monotonic() - began}) + b"\n")
    abandoned = asyncio.Event()
    # The other end is the keeper's. A sandbox ends with its keeper anyway; without one the guest sees to it.
    asyncio.get_running_loop().add_reader(speak, abandoned.set)
    watching = asyncio.create_task(_tell_of_losses(session, speak))
    await abandoned.wait()
    watching.cancel()
    if not settings.sandboxed:
        end_marked(settings.id)


async def _tell_of_losses(session: Session, speak: int) -> None:
    """Say at once when a part dies, so that nobody is given a desktop that would only answer with that."""
    loss = await session.until_lost()
    with contextlib.suppress(OSError):  # the keeper is gone: then so are we
        os.write(speak, msgspec.json.encode(loss) + b"\n")
