"""Recordings of a real screen, decoded again."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from Xlib import X
from Xlib.display import Display

from deskroll.desktops.x11.capture import Frame, FramebufferScreen, Screen, ShmScreen
from deskroll.desktops.x11.recording import REPEAT_S, Allowance, Recorder, RecordingEnd
from deskroll.errors import DesktopError, DesktopLost, DesktopTimeout
from tests.browser import needs_chromium, played_by_chromium
from tests.waiting import wait_until
from tests.x11.conftest import XSession

RED, GREEN = 0xE02020, 0x20C040
Paint = Callable[[int], None]


@dataclass
class Film:
    times: list[float]
    pictures: list[NDArray[np.uint8]]
    duration: float

    def shows(self, colour: int, n: int) -> bool:
        """Whether picture `n` has `colour` at 100,100, as far as the encoding keeps it."""
        wanted = [colour >> 16, colour >> 8 & 255, colour & 255]
        return bool(np.abs(self.pictures[n][100, 100].astype(int) - wanted).max() < 12)


def play(path: Path) -> Film:
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert (stream.codec_context.name, stream.codec_context.pix_fmt) == ("h264", "yuv420p")
        frames = list(container.decode(stream))
        end = max(frame.pts + frame.duration for frame in frames) * stream.time_base
    return Film([frame.time for frame in frames], [frame.to_ndarray(format="rgb24") for frame in frames], float(end))


def boxes(path: Path) -> list[str]:
    """The names of an mp4 file's outermost boxes, in order."""
    data, names, at = path.read_bytes(), [], 0
    while at < len(data):
        names.append(data[at + 4 : at + 8].decode())
        at += int.from_bytes(data[at : at + 4], "big")
    return names


class CountingScreen:
    """A real screen that also counts how often it was looked at."""

    def __init__(self, screen: Screen) -> None:
        self.width, self.height, self.looks, self._screen = screen.width, screen.height, 0, screen

    def grab(self) -> Frame:
        self.looks += 1
        return self._screen.grab()

    def close(self) -> None:
        self._screen.close()

    def look(self, times: int = 2) -> None:
        """Wait until the screen was looked at so many more times."""
        seen = self.looks
        wait_until(lambda: self.looks >= seen + times, "the recorder looks at the screen")


@dataclass
class StillScreen:
    """A picture that never changes, of any size."""

    width: int
    height: int

    def grab(self) -> Frame:
        row = (b"\x20\x40\xc0\0" * self.width).ljust(self.width * 4 + 8, b"\0")
        return Frame(self.width, self.height, len(row), row * self.height)

    def close(self) -> None:
        pass


@pytest.fixture
def screen(xsession: XSession) -> Iterator[CountingScreen]:
    screen = CountingScreen(FramebufferScreen(xsession.framebuffer))
    yield screen
    screen.close()


@pytest.fixture
def paint(xsession: XSession) -> Iterator[Paint]:
    """Return a function that fills the screen with one colour and waits until it is there."""
    display = Display(xsession.name)
    screen = FramebufferScreen(xsession.framebuffer)
    window = display.screen().root.create_window(
        0, 0, 1920, 1080, 0, X.CopyFromParent, override_redirect=True, background_pixel=0
    )
    window.map()

    def fill(colour: int) -> None:
        window.change_attributes(background_pixel=colour)
        window.clear_area(0, 0, 1920, 1080)
        display.sync()
        wanted = colour.to_bytes(3, "little")
        wait_until(lambda: screen.grab().data[7680 * 100 + 400 :][:3] == wanted, "the screen is painted")

    yield fill
    screen.close()
    display.close()


def test_a_recording_shows_what_happened_when_it_happened(screen: CountingScreen, paint: Paint, tmp_path: Path) -> None:
    paint(RED)
    recorder = Recorder(screen, tmp_path / "film.mp4")
    began = time.monotonic()
    recorder.start()
    screen.look()
    looking = painting = time.monotonic() - began  # the film's own clock started before this
    paint(GREEN)
    screen.look()
    stopping = time.monotonic() - began
    assert recorder.stop() == tmp_path / "film.mp4"
    stopped = time.monotonic() - began
    assert recorder.end is RecordingEnd.STOPPED

    film = play(recorder.path)
    change = next(n for n in range(len(film.times)) if film.shows(GREEN, n))
    assert all(film.shows(RED, n) for n in range(change))
    assert all(film.shows(GREEN, n) for n in range(change, len(film.times)))
    assert film.times[0] <= looking
    assert painting - looking <= film.times[change] <= stopped
    assert stopping - looking <= film.duration <= stopped + 0.3


def test_a_browser_can_play_it(screen: CountingScreen, tmp_path: Path) -> None:
    recorder = Recorder(screen, tmp_path / "film.mp4")
    recorder.start()
    screen.look()
    recorder.stop()
    names = boxes(recorder.path)
    assert names.index("moov") < names.index("mdat")
    assert "moof" not in names
    assert not (tmp_path / "film.mp4.part").exists()
    with av.open(str(recorder.path)) as container:
        assert container.duration is not None
        assert container.streams.video[0].profile in ("Constrained Baseline", "Baseline", "Main", "High")


@needs_chromium
def test_a_browser_plays_it(screen: CountingScreen, paint: Paint, tmp_path: Path) -> None:
    paint(RED)
    recorder = Recorder(screen, tmp_path / "film.mp4")
    recorder.start()
    screen.look(3)
    paint(GREEN)
    screen.look(3)
    said = played_by_chromium(recorder.stop(), tmp_path)
    assert said.get("played"), said
    assert (said["width"], said["height"]) == (1920, 1080)
    assert said["duration"] == pytest.approx(play(recorder.path).duration, abs=0.3)
    assert np.abs(np.array(said["last"]) - [GREEN >> 16, GREEN >> 8 & 255, GREEN & 255]).max() < 16


@pytest.mark.parametrize(("fps", "cost", "share"), [(5, 0.03, 0.045), (30, 0.05, 0.27), (5, 0.002, 0.01)])
def test_it_costs_no_more_than_its_share(fps: int, cost: float, share: float) -> None:
    now = spent = looks = 0.0
    allowance = Allowance(fps, now, spent)
    while now < 60:
        now, spent, looks = max(allowance.earliest(now, spent), now + 1 / fps), spent + cost, looks + 1
    assert spent / now <= share * 1.02
    assert looks / now >= min(fps, share / cost) * 0.9


def test_what_was_spared_is_used_for_a_burst_and_a_look_a_second_is_always_allowed() -> None:
    allowance = Allowance(5, 0.0, 0.0)
    assert allowance.earliest(100.0, 0.0) == 100.0
    assert allowance.earliest(100.2, 0.4) == 100.2
    assert allowance.earliest(100.4, 0.5) > 100.4
    assert allowance.earliest(101.0, 90.0) == 102.0


def test_a_still_picture_costs_few_frames_and_keeps_its_time(
    screen: CountingScreen, paint: Paint, tmp_path: Path
) -> None:
    paint(RED)
    recorder = Recorder(screen, tmp_path / "film.mp4", fps=20)
    recorder.start()
    screen.look(2)
    looking = time.monotonic()
    wait_until(lambda: time.monotonic() - looking > REPEAT_S + 1, "it recorded for a while")
    lasted = time.monotonic() - looking
    recorder.stop()
    film = play(recorder.path)
    assert screen.looks > 2 * len(film.times)
    assert len(film.times) <= film.duration / REPEAT_S + 3
    assert film.duration >= lasted


def test_stop_may_be_repeated(screen: CountingScreen, tmp_path: Path) -> None:
    recorder = Recorder(screen, tmp_path / "film.mp4")
    recorder.start()
    first = recorder.stop()
    content = first.read_bytes()
    assert recorder.stop() == first
    assert first.read_bytes() == content
    assert len(play(first).times) >= 1


def test_a_recorder_is_used_once_and_in_order(screen: CountingScreen, tmp_path: Path) -> None:
    recorder = Recorder(screen, tmp_path / "film.mp4")
    with pytest.raises(RuntimeError, match="was not started"):
        recorder.stop()
    recorder.start()
    with pytest.raises(RuntimeError, match="was started already"):
        recorder.start()
    recorder.stop()
    with pytest.raises(ValueError, match="fps is 0; allowed: 1 to 60"):
        Recorder(screen, tmp_path / "film.mp4", fps=0)


def test_a_lost_screen_ends_it_with_a_playable_file(screen, paint, xsession: XSession, tmp_path: Path) -> None:
    paint(RED)
    recorder = Recorder(screen, tmp_path / "film.mp4", fps=10)
    recorder.start()
    screen.look(4)
    os.truncate(xsession.framebuffer, 5000)
    wait_until(lambda: recorder.end is not None, "the recording ends by itself")
    for _ in range(2):
        with pytest.raises(DesktopLost, match="was truncated to 5000 of"):
            recorder.stop()
    assert recorder.end is RecordingEnd.FAILED
    film = play(recorder.path)
    assert film.shows(RED, 0)
    assert film.duration >= 0.2
    assert "moof" not in boxes(recorder.path)


def test_it_ends_at_its_time_limit(screen: CountingScreen, tmp_path: Path) -> None:
    recorder = Recorder(screen, tmp_path / "film.mp4", max_seconds=1.0)
    recorder.start()
    wait_until(lambda: recorder.end is not None, "the recording ends by itself")
    assert recorder.end is RecordingEnd.TIME_LIMIT
    assert play(recorder.stop()).duration >= 1.0
    looks = screen.looks
    assert recorder.stop() == recorder.path
    assert screen.looks == looks


def test_it_ends_at_its_size_limit(screen: CountingScreen, tmp_path: Path) -> None:
    recorder = Recorder(screen, tmp_path / "film.mp4", max_bytes=1)
    recorder.start()
    wait_until(lambda: recorder.end is not None, "the recording ends by itself")
    assert recorder.end is RecordingEnd.SIZE_LIMIT
    assert len(play(recorder.stop()).times) >= 1


@pytest.mark.parametrize(("width", "height"), [(641, 480), (640, 481), (641, 481), (17, 33)])
def test_odd_sizes_are_padded(width: int, height: int, tmp_path: Path) -> None:
    recorder = Recorder(StillScreen(width, height), tmp_path / "film.mp4")
    recorder.start()
    recorder.stop()
    picture = play(recorder.path).pictures[0]
    assert picture.shape == (height + height % 2, width + width % 2, 3)
    assert np.abs(picture.astype(int) - [0xC0, 0x40, 0x20]).max() < 12


def test_a_file_that_cannot_be_written_is_reported(screen: CountingScreen, tmp_path: Path) -> None:
    recorder = Recorder(screen, tmp_path / "none" / "film.mp4")
    with pytest.raises(DesktopError, match="cannot be written: No such file or directory"):
        recorder.start()
    full = Recorder(screen, Path("/dev/full"))
    with pytest.raises(DesktopError, match="No space left on device"):
        full.start()
        full.stop()


def test_a_screen_that_never_answers_is_a_timeout_until_it_is_closed(xsession: XSession, tmp_path: Path) -> None:
    screen = CountingScreen(ShmScreen(xsession.name))
    recorder = Recorder(screen, tmp_path / "film.mp4")
    recorder.start()
    screen.look()
    xsession.children[0].send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(DesktopTimeout, match="did not end within 1 s; close its screen to free it"):
            recorder.stop(timeout_s=1.0)
        screen.close()
        with pytest.raises(DesktopError):
            recorder.stop()
    finally:
        xsession.children[0].send_signal(signal.SIGCONT)
    assert len(play(recorder.path).times) >= 1


KILLED = """
import sys
from pathlib import Path
from deskroll.desktops.x11.capture import FramebufferScreen
from deskroll.desktops.x11.recording import Recorder
Recorder(FramebufferScreen(Path(sys.argv[1])), Path(sys.argv[2]), fps=10).start()
print("recording", flush=True)
sys.stdin.read()
"""


def test_a_killed_recording_plays(xsession: XSession, paint: Paint, tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    paint(RED)
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(xsession.framebuffer), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout is not None and child.stdin is not None
    assert child.stdout.readline() == b"recording\n"
    wait_until(lambda: path.read_bytes().count(b"moof") >= 2, "two fragments are in the file")
    child.kill()
    child.wait()
    child.stdout.close()
    child.stdin.close()
    film = play(path)
    assert film.shows(RED, 0)
    assert film.duration >= 1


def test_a_recorder_leaves_no_thread_behind(screen: CountingScreen, tmp_path: Path) -> None:
    recorder = Recorder(screen, tmp_path / "film.mp4")
    recorder.start()
    recorder.stop()
    assert "recorder" not in {thread.name for thread in threading.enumerate()}
