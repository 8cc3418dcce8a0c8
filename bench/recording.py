"""What recording a desktop costs: CPU time of the recorder's thread in the guest, in percent of one core.

    python bench/recording.py [--quick]

Screens of 1920x1080 (and 1280x720: figures that end in _720) at 5 pictures a second: an editor whose caret blinks,
text that is typed, a terminal that fills and scrolls ten times a second, a window that is dragged about. The time is
the kernel's own count for the thread, so what else the desktop and the machine do is not in it.
"""

from __future__ import annotations

import asyncio
import io
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import av

sys.path.insert(0, str(Path(__file__).parent))
from common import Figures, options
from deskroll.actions import Hotkey, MouseDown, MouseUp, MoveTo, Press, Typing
from deskroll.desktops.base import DesktopSpec, Observe
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers.local import places
from deskroll.desktops.providers.local.provider import LocalProvider

BLIND = Observe(screenshot=False)
TEXT = "the quick brown fox jumps over the lazy dog " * 6
LOG = f"i=0; while :; do i=$((i+1)); for n in 1 2 3; do echo $i.$n $(date +%N) {TEXT}; done; sleep 0.1; done"
Work = Callable[[GuestDesktop, float], Awaitable[None]]


async def main() -> None:
    seconds = 4.0 if options(__doc__).quick else 20.0
    figures = Figures("recording")
    async with LocalProvider() as provider:
        for width, height, suffix in ((1920, 1080, ""), (1280, 720, "_720")):
            for name, work in WORKS.items():
                address = await provider.boot(DesktopSpec(width=width, height=height))
                async with GuestDesktop(address) as desktop:
                    await prepare(desktop, name)
                    share, note = await recorded(desktop, work, seconds)
                figures.add(f"recording_cpu_pct_{name}{suffix}", share, note)
                await provider.stop(address.id)
    figures.finish()


async def prepare(desktop: GuestDesktop, name: str) -> None:
    """A window for the work, as large as the screen where it is not to be moved."""
    await desktop.launch(["xterm", "-e", "sh", "-c", LOG] if name == "scroll" else ["mousepad"])
    deadline = time.monotonic() + 60
    while not any(window.active for window in await desktop.windows()):
        if time.monotonic() > deadline:
            raise SystemExit(f"{name}: no window opened")
        await asyncio.sleep(0.05)
    if name in ("scroll", "typing"):
        # openbox's own menu of the window: the key for maximising
        await desktop.step([Hotkey(keys=("alt", "space")), Press(key="x")], observe=BLIND)
    await asyncio.sleep(1.0)


async def recorded(desktop: GuestDesktop, work: Work, seconds: float) -> tuple[float, str]:
    """The recorder's share of a core while the work goes on, and what the film holds."""
    guest = _guest_pid(desktop.address.id)
    before = _threads(guest)
    await desktop.start_recording(5)
    (thread,) = _threads(guest) - before
    await asyncio.sleep(0.5)  # the first picture is another matter: all of it is new
    began, used = time.monotonic(), _cpu_s(guest, thread)
    await work(desktop, began + seconds)
    spent, lasted = _cpu_s(guest, thread) - used, time.monotonic() - began
    film = await desktop.end_recording()
    with av.open(io.BytesIO(film)) as container:
        frames = sum(1 for packet in container.demux(video=0) if packet.size)
    return 100 * spent / lasted, f"{frames} pictures, {len(film) / lasted / 1000:.1f} kB/s"


def _guest_pid(desktop_id: str) -> int:
    """The process that serves the desktop's guest, and records: a child of its keeper."""
    keeper = next(note.keeper_pid for note in places.notebook().list() if note.id == desktop_id)
    children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
    return next(int(pid) for pid in children if b"deskroll-guest" in Path(f"/proc/{pid}/cmdline").read_bytes())


def _threads(pid: int) -> set[int]:
    return {int(each.name) for each in Path(f"/proc/{pid}/task").iterdir()}


def _cpu_s(pid: int, thread: int) -> float:
    return int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0]) / 1e9


async def idle(desktop: GuestDesktop, until: float) -> None:
    await asyncio.sleep(until - time.monotonic())


async def typing(desktop: GuestDesktop, until: float) -> None:
    """Eight letters a second, and a new line now and then."""
    letters = 0
    while (left := until - time.monotonic()) > 0:
        letters += 1
        await desktop.step(
            [Typing(text="\n" if letters % 60 == 0 else "abcdefgh "[letters % 9])], settle=None, observe=BLIND
        )
        await asyncio.sleep(min(0.125, left))


async def drag(desktop: GuestDesktop, until: float) -> None:
    """The window goes about by its title, twenty places a second."""
    window = next(each for each in await desktop.windows() if each.active)
    x, y = window.x + window.width // 2, window.y - 10
    await desktop.step([MoveTo(x=x, y=y), MouseDown()], settle=None, observe=BLIND)
    place = 0
    while (left := until - time.monotonic()) > 0:
        place = (place + 7) % 400
        at = MoveTo(x=x + abs(200 - place) - 100, y=max(15, y + abs(200 - place) // 2))
        await desktop.step([at], settle=None, observe=BLIND)
        await asyncio.sleep(min(0.05, left))
    await desktop.step([MouseUp()], settle=None, observe=BLIND)


WORKS: dict[str, Work] = {"idle": idle, "typing": typing, "scroll": idle, "drag": drag}

if __name__ == "__main__":
    asyncio.run(main())
