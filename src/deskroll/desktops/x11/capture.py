"""Looks at the screen of one X display: raw pixels, with the pointer drawn in.

Two ways, one `Screen` protocol. `FramebufferScreen` reads the file that `Xvfb -fbdir` draws into: fastest,
and it does not talk to the X server, so a wedged server cannot block it. `ShmScreen` asks any other server.

Guarantees: the size of a screen is fixed when it is opened and every `Frame` has it. Whatever a program in
the desktop does to the framebuffer file (it may write to, truncate or remove it), the worst outcome is
`DesktopLost`: the file is read with `pread`, never mapped, since a reader that maps a file which is then cut
short dies of SIGBUS.

A server that exits by itself removes its framebuffer file, which is noticed here. A killed one leaves it with
the last picture: whoever holds a connection to the server notices that.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import stat
import struct
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import mss
from mss.exception import ScreenShotError
from mss.linux.base import MSSImplXCBBase
from mss.linux.xcbhelpers import LIB

from deskroll.errors import BootError, DeathCause, DesktopError, DesktopLost

MAX_SIDE = 16_384
"""Pixels: no screen is wider or higher."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One picture of the screen: rows of `stride` bytes; a pixel is blue, green, red and a byte unused."""

    width: int
    height: int
    stride: int
    data: bytes

    def __post_init__(self) -> None:
        if self.width < 1 or self.height < 1 or self.stride < self.width * 4:
            raise ValueError(f"no picture is {self.width}x{self.height} with {self.stride} bytes a row")
        if len(self.data) != self.stride * self.height:
            raise ValueError(f"{self.height} rows of {self.stride} bytes are not {len(self.data)} bytes")


class Screen(Protocol):
    """Something that can be looked at. Any thread may call it; calls wait for each other."""

    @property
    def width(self) -> int:
        """Pixels from left to right."""

    @property
    def height(self) -> int:
        """Pixels from top to bottom."""

    def grab(self) -> Frame:
        """Return the picture of this moment, or raise `DesktopLost`."""

    def close(self) -> None:
        """Let go of the screen; again does nothing."""


def open_screen(display_name: str, framebuffer: Path | None) -> Screen:
    """Open the framebuffer file where there is one, else the display through shared memory."""
    return ShmScreen(display_name) if framebuffer is None else FramebufferScreen(framebuffer)


class _Header(NamedTuple):
    """The fields of an xwd file's header, which Xvfb writes in big-endian order."""

    header_size: int
    file_version: int
    pixmap_format: int
    pixmap_depth: int
    pixmap_width: int
    pixmap_height: int
    xoffset: int
    byte_order: int
    bitmap_unit: int
    bitmap_bit_order: int
    bitmap_pad: int
    bits_per_pixel: int
    bytes_per_line: int
    visual_class: int
    red_mask: int
    green_mask: int
    blue_mask: int
    bits_per_rgb: int
    colormap_entries: int
    ncolors: int


_HEADER = struct.Struct(f">{len(_Header._fields)}I")
_COLOUR_SIZE = 12
_GRAB_ERRORS = (ScreenShotError, AssertionError, ValueError)
"""What mss raises; when the connection ended it only asserts a reply, or follows a null pointer."""
_BGR_MASKS = (0xFF0000, 0xFF00, 0xFF)


def _check_header(header: _Header, path: Path) -> None:
    """Raise `BootError` unless the file holds BGRX pixels of a believable size."""
    width, height, stride = header.pixmap_width, header.pixmap_height, header.bytes_per_line
    masks = (header.red_mask, header.green_mask, header.blue_mask)
    checks = {
        "is not an xwd file of version 7": header.file_version == 7,
        f"has a header of {header.header_size} bytes": _HEADER.size <= header.header_size <= 65_536,
        f"has a colour table of {header.ncolors} entries": header.ncolors <= 65_536,
        f"has pixmap format {header.pixmap_format}, not 2 (ZPixmap)": header.pixmap_format == 2,
        f"has depth {header.pixmap_depth}; start Xvfb with 24": header.pixmap_depth in (24, 32),
        f"has {header.bits_per_pixel} bits a pixel, not 32": header.bits_per_pixel == 32,
        "has pixels that are not ordered blue, green, red": header.byte_order == 0 and masks == _BGR_MASKS,
        f"has {width}x{height} pixels; 1 to {MAX_SIDE} each way are allowed": (
            1 <= width <= MAX_SIDE and 1 <= height <= MAX_SIDE
        ),
        f"has {stride} bytes a row for {width} pixels": width * 4 <= stride <= width * 4 + 64,
    }
    for problem, fine in checks.items():
        if not fine:
            raise BootError(f"framebuffer {path} {problem}")


class FramebufferScreen:
    """Reads the file `Xvfb_screen0` in the directory that was given to `Xvfb -fbdir`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        try:
            # NONBLOCK: opening a FIFO that somebody put there would otherwise wait for ever.
            self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise BootError(
                f"framebuffer {path} cannot be opened: {error.strerror}; does Xvfb run with -fbdir?"
            ) from error
        try:
            self._read_geometry()
        except BaseException:
            self.close()
            raise

    def _read_geometry(self) -> None:
        state = os.fstat(self._fd)
        self._header = os.pread(self._fd, _HEADER.size, 0) if stat.S_ISREG(state.st_mode) else b""
        if len(self._header) < _HEADER.size:
            raise BootError(f"framebuffer {self._path} is not a file with a complete xwd header")
        header = _Header._make(_HEADER.unpack(self._header))
        _check_header(header, self._path)
        self.width, self.height = header.pixmap_width, header.pixmap_height
        self._stride = header.bytes_per_line
        self._offset = header.header_size + _COLOUR_SIZE * header.ncolors
        self._end = self._offset + self._stride * self.height
        if state.st_size < self._end:
            raise BootError(f"framebuffer {self._path} has {state.st_size} of {self._end} bytes")

    def grab(self) -> Frame:
        """Read the picture of this moment; what is being drawn meanwhile may be half there."""
        with self._lock:
            if self._fd < 0:
                raise DesktopError(f"framebuffer {self._path} was closed; open the screen again")
            self._check_file()
            data = os.pread(self._fd, self._end - self._offset, self._offset)
            if len(data) < self._end - self._offset:  # cut while it was read
                raise self._truncated(min(os.fstat(self._fd).st_size, self._offset + len(data)))
        return Frame(self.width, self.height, self._stride, data)

    def _check_file(self) -> None:
        state = os.fstat(self._fd)
        if state.st_size < self._end:
            raise self._truncated(state.st_size)
        if state.st_nlink == 0:
            raise DesktopLost(
                f"framebuffer {self._path} was removed or replaced: the X server exited, or a program "
                "deleted it; this desktop must be replaced"
            )
        if os.pread(self._fd, _HEADER.size, 0) != self._header:
            message = f"framebuffer {self._path}: its header was overwritten; this desktop must be replaced"
            raise DesktopLost(message, DeathCause.INSIDE)

    def _truncated(self, size: int) -> DesktopLost:
        message = (
            f"framebuffer {self._path} was truncated to {size} of {self._end} bytes; this desktop must be replaced"
        )
        return DesktopLost(message, DeathCause.INSIDE)  # only programs there can write to it

    def close(self) -> None:
        """Close the file; again does nothing."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


class ShmScreen:
    """Asks the X server for its picture through shared memory, and draws the pointer into it."""

    def __init__(self, display_name: str) -> None:
        self._display_name = display_name
        self._grabbing = threading.Lock()
        self._closing = threading.Lock()
        self._closed = False
        try:
            self._mss = mss.MSS(backend="xshmgetimage", display=display_name, with_cursor=True)
            self._area = self._mss.monitors[0]
        except ScreenShotError as error:
            raise BootError(f"display {display_name} gives no picture: {error}; is its server up?") from error
        self.width, self.height = self._area["width"], self._area["height"]
        self._connection = _duplicate_connection(self._mss)

    def grab(self) -> Frame:
        """Return the picture of this moment; waits for the server, until `close` at the latest."""
        with self._grabbing:
            if self._closed:
                raise DesktopError(f"display {self._display_name} was closed; open the screen again")
            try:
                data = bytes(self._mss.grab(self._area).raw)
            except _GRAB_ERRORS as error:
                reason = str(error) or "its server hung up"
                raise DesktopLost(
                    f"display {self._display_name} gives no picture: {reason}; this desktop must be replaced"
                ) from error
        return Frame(self.width, self.height, self.width * 4, data)

    def close(self) -> None:
        """Close the connection, also under a `grab` that waits for a wedged server; again does nothing."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        with contextlib.suppress(OSError):  # the server may have hung up before
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        # mss frees the connection here, so no grab may be under way. It reports the shutting done above.
        with self._grabbing, contextlib.suppress(ScreenShotError):
            self._mss.close()


def _duplicate_connection(grabber: mss.MSS) -> socket.socket:
    """Return a socket of our own on the grabber's connection: shutting it frees a thread that waits there.

    `mss` offers no such handle, and its own `close` would wait for the very thread that is stuck.
    """
    implementation = grabber._impl
    if not isinstance(implementation, MSSImplXCBBase) or implementation.conn is None:
        raise BootError(f"mss took {type(implementation).__name__}, which has no xcb connection to watch")
    descriptor_of = LIB.xcb["xcb_get_file_descriptor"]
    descriptor_of.argtypes, descriptor_of.restype = [ctypes.c_void_p], ctypes.c_int
    return socket.socket(fileno=os.dup(descriptor_of(ctypes.addressof(implementation.conn))))
