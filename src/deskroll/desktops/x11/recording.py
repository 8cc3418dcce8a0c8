"""Records a screen to an mp4 file (H.264, 4:2:0) that browsers play.

While recording, the file is a fragmented mp4: whatever is killed, it plays up to a few seconds before that.
A recording that ends is rewritten (packets copied, nothing encoded again) as a plain mp4 with its index in
front, since a fragmented file has no duration and seeks badly in browsers. The rewritten file replaces the
other one by a rename, so that a playable file is at `path` at any time.

Guarantees: the file plays as long as the recording lasted. A picture that did not change is not encoded
again: frames carry their own times, at most `REPEAT_S` apart. It costs no more than its share of a core
(`Allowance`): where very much moves, fewer pictures are taken. The recording ends by itself at its limits and
when the screen is lost; `stop` reports the latter, and the file holds what came before.

`FilmWriter` makes such a file of any pictures, each with its time; nothing in it knows a screen or a clock.
"""

from __future__ import annotations

import contextlib
import enum
import threading
import time
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.video.frame import VideoFrame
from av.video.plane import VideoPlane
from av.video.reformatter import ColorPrimaries, ColorRange, Colorspace, ColorTrc, Interpolation, VideoReformatter
from av.video.stream import VideoStream
from isal import isal_zlib
from numpy.typing import NDArray

from deskroll.desktops.x11.capture import Frame, Screen
from deskroll.errors import DesktopError, DesktopTimeout

REPEAT_S = 2.0
"""Seconds after which an unchanged picture is written again; bounds what a kill can lose."""
_TICKS = 1000
"""Ticks of the file's clock in a second."""
_FRAGMENTED = {"movflags": "empty_moov+default_base_moof", "frag_duration": "1000000", "flush_packets": "1"}
_X264 = {"preset": "ultrafast", "tune": "zerolatency", "qp": "26", "threads": "1"}
"""Without latency every frame leaves the encoder at once; a fixed quality spares it the planning of the rate;
one thread leaves the other cores to others."""
_BAND = 72
"""Rows (an even number) that are compared and converted together."""
_KEYFRAME_EVERY = 50
"""Frames; a player that seeks decodes at most so many."""


class RecordingEnd(enum.StrEnum):
    """Why a recording ended."""

    STOPPED = "stopped"
    """`stop` was called."""
    TIME_LIMIT = "time_limit"
    """It lasted `max_seconds`."""
    SIZE_LIMIT = "size_limit"
    """Its file reached `max_bytes`."""
    FAILED = "failed"
    """The screen or the file failed; `stop` raises the error."""


class Recorder:
    """Records `screen` on a thread of its own, from `start` to `stop`. Single use."""

    def __init__(
        self,
        screen: Screen,
        path: Path,
        fps: int = 5,
        max_seconds: float = 3600.0,
        max_bytes: int = 512 * 2**20,
    ) -> None:
        if not 1 <= fps <= 60:
            raise ValueError(f"fps is {fps}; allowed: 1 to 60")
        self.path = path
        self.end: RecordingEnd | None = None
        self._screen = screen
        self._fps = fps
        self._max_seconds = max_seconds
        self._max_bytes = max_bytes
        self._stopping = threading.Event()
        self._error: DesktopError | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Open the file and begin; raises `DesktopError` where the file cannot be written."""
        if self._thread is not None:
            raise RuntimeError(f"recording {self.path} was started already; make a new Recorder")
        try:
            writer = FilmWriter(self.path, self._screen.width, self._screen.height, self._fps)
        except OSError as error:
            raise DesktopError(f"recording {self.path} cannot be written: {error.strerror}") from error
        # A daemon: a screen that never answers must not keep the process alive.
        self._thread = threading.Thread(target=self._run, args=(writer,), name="recorder", daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float = 30.0) -> Path:
        """End the recording and return its file; called again, return or raise the same.

        Raises what ended it early: `DesktopLost` from the screen, or a `DesktopError` about the file; what
        was recorded before is at `path` all the same. Raises `DesktopTimeout` if the screen does not answer:
        closing the screen frees the recorder then.
        """
        if self._thread is None:
            raise RuntimeError(f"recording {self.path} was not started")
        self._stopping.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise DesktopTimeout(
                f"recording {self.path} did not end within {timeout_s:g} s; close its screen to free it"
            )
        if self._error is not None:
            raise self._error
        return self.path

    def _run(self, writer: FilmWriter) -> None:
        try:
            with contextlib.closing(writer):
                end = self._record(writer)
            self.end = end
        except DesktopError as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001  the end of a thread: `stop` raises it
            failure = DesktopError(f"recording {self.path} failed: {type(error).__name__}: {error}")
            failure.__cause__ = error
            self._fail(failure)

    def _fail(self, error: DesktopError) -> None:
        self._error = error
        self.end = RecordingEnd.FAILED

    def _record(self, writer: FilmWriter) -> RecordingEnd:
        """Show the writer the screen `fps` times a second; the last look comes after the end was decided."""
        began = now = time.monotonic()
        allowance: Allowance | None = None
        while True:
            end = self._due_end(now - began, writer.size)
            frame = self._screen.grab()
            now = time.monotonic()
            writer.write(frame, now - began)
            if end is not None:
                return end
            if allowance is None:  # the first picture, in which all is new, does not count
                allowance = Allowance(self._fps, now, time.thread_time())
            earliest = allowance.earliest(now, time.thread_time()) - began
            next_tick = (int(max(now - began, earliest) * self._fps) + 1) / self._fps  # missed ticks are left out
            self._stopping.wait(began + min(next_tick, self._max_seconds) - time.monotonic())
            now = time.monotonic()

    def _due_end(self, elapsed: float, size: int) -> RecordingEnd | None:
        if self._stopping.is_set():
            return RecordingEnd.STOPPED
        if elapsed >= self._max_seconds:
            return RecordingEnd.TIME_LIMIT
        return RecordingEnd.SIZE_LIMIT if size >= self._max_bytes else None


class Allowance:
    """How much CPU time a recording may take: 4.5% of a core, and 0.9% more for each picture a second beyond five.

    What was not used is kept for a while, so that short bursts are recorded in full. One picture a second is
    always allowed.
    """

    _KEPT_S = 10.0
    """Seconds whose unused allowance may be used later."""

    def __init__(self, fps: int, now: float, spent: float) -> None:
        self._share = 0.045 * max(1.0, fps / 5)
        self._left = 0.0
        self._now, self._spent = now, spent

    def earliest(self, now: float, spent: float) -> float:
        """When the next look may be, at a time when the recording has spent so much; both in seconds."""
        self._left += (now - self._now) * self._share - (spent - self._spent)
        self._left = min(self._left, self._KEPT_S * self._share)
        self._now, self._spent = now, spent
        return now + min(max(0.0, -self._left / self._share), 1.0)


class FilmWriter:
    """Encodes frames into a fragmented mp4, each at its time, leaving out those that show nothing new."""

    def __init__(self, path: Path, width: int, height: int, fps: int) -> None:
        self._path = path
        self.size = 0
        """Bytes of video so far."""
        self._frame_ticks = _TICKS // fps
        self._canvas = _Canvas(width, height)
        self._written = -1  # when the last frame in the file was shown, and the last one seen, in ticks
        self._seen = -1
        self._container = av.open(str(path), "w", format="mp4", options=_FRAGMENTED)
        try:
            self._stream = self._add_stream(fps)
            self._container.start_encoding()
        except BaseException:
            self._container.close()
            raise

    def _add_stream(self, fps: int) -> VideoStream:
        stream = self._container.add_stream("libx264", rate=fps, options=_X264)
        picture = self._canvas.picture
        stream.width, stream.height, stream.pix_fmt = picture.width, picture.height, picture.format.name
        stream.time_base = Fraction(1, _TICKS)
        context = stream.codec_context
        context.time_base = Fraction(1, _TICKS)
        context.thread_count = 1
        context.gop_size = _KEYFRAME_EVERY
        # Said aloud, since players otherwise guess the colours by the size of the picture.
        context.colorspace = Colorspace.ITU709
        context.color_range = ColorRange.MPEG
        context.color_primaries = ColorPrimaries.BT709
        context.color_trc = ColorTrc.BT709
        return stream

    def write(self, frame: Frame, at_s: float) -> None:
        """Take the picture that the screen showed `at_s` seconds after the recording began."""
        self._seen = max(round(at_s * _TICKS), self._written + 1)
        changed = self._canvas.draw(frame)
        if changed or self._seen - self._written >= REPEAT_S * _TICKS:
            self._encode()

    def close(self) -> None:
        """Show the last picture until the moment it was last seen, and finish the file."""
        try:
            if self._seen > self._written:
                self._encode()
            self._mux(self._stream.encode(None))
        finally:
            self._container.close()
        if self._written >= 0:
            _move_index_to_front(self._path)

    def _encode(self) -> None:
        picture = self._canvas.picture
        picture.pts = self._written = self._seen
        picture.duration = self._frame_ticks
        picture.time_base = Fraction(1, _TICKS)
        self._mux(self._stream.encode(picture))

    def _mux(self, packets: list[av.Packet[VideoStream]]) -> None:
        for packet in packets:
            self.size += packet.size
            self._container.mux(packet)


class _Canvas:
    """The screen as a 4:2:0 picture of even size, drawn anew only in the bands of rows that changed.

    It tells changes by checksums of the bands: keeping the pixels would cost a whole frame of memory.
    """

    def __init__(self, width: int, height: int) -> None:
        self.picture = VideoFrame(width + width % 2, height + height % 2, "yuv420p")
        self._checksums: dict[int, int] = {}
        self._reformatter = VideoReformatter()

    def draw(self, frame: Frame) -> bool:
        """Take over a frame; say whether it differs from the one before."""
        data = memoryview(frame.data)
        changed = False
        for top in range(0, frame.height, _BAND):
            checksum = isal_zlib.crc32(data[top * frame.stride : (top + _BAND) * frame.stride])
            if self._checksums.get(top) != checksum:
                self._checksums[top] = checksum
                self._draw_band(frame, top)
                changed = True
        return changed

    def _draw_band(self, frame: Frame, top: int) -> None:
        shape = (min(_BAND, frame.height - top), frame.width, 4)
        pixels = np.ndarray(shape, np.uint8, frame.data, top * frame.stride, (frame.stride, 4, 1))
        if shape[0] % 2 or shape[1] % 2:  # 4:2:0 takes pixels by twos: double the last row and column
            pixels = np.pad(pixels, ((0, shape[0] % 2), (0, shape[1] % 2), (0, 0)), mode="edge")
        band = self._reformatter.reformat(
            VideoFrame.from_numpy_buffer(pixels, format="bgra"),
            format="yuv420p",
            dst_colorspace=Colorspace.ITU709,
            dst_color_range=ColorRange.MPEG,
            interpolation=Interpolation.POINT,  # a third cheaper, and only colours are taken from every other pixel
            threads=1,
        )
        for source, target, at in zip(band.planes, self.picture.planes, (top, top // 2, top // 2), strict=True):
            _rows(target)[at : at + source.height, : source.width] = _rows(source)[:, : source.width]


def _rows(plane: VideoPlane) -> NDArray[np.uint8]:
    """Return a plane's memory as an array of its rows, padding included."""
    return np.frombuffer(memoryview(plane), np.uint8).reshape(plane.height, plane.line_size)


def _move_index_to_front(path: Path) -> None:
    """Rewrite a fragmented mp4 as a plain one with its index in front, in one rename."""
    part = path.with_name(path.name + ".part")
    try:
        with (
            av.open(str(path)) as source,
            av.open(str(part), "w", format="mp4", options={"movflags": "faststart"}) as target,
        ):
            stream = source.streams.video[0]
            copy = target.add_stream_from_template(stream)
            for packet in source.demux(stream):
                if packet.dts is not None:  # the last packet is empty: it only says that there are no more
                    packet.stream = copy
                    target.mux(packet)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
