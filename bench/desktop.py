"""One local desktop, measured: boot, look, act, settle, tree, memory; beside the stock way of driving one.

    python bench/desktop.py [--quick]

The stock way is OSWorld's server's: a new `python -c "import pyautogui ..."` for each action, then scrot, on the same
desktop through the same socket. Settling is measured against what really happened on the screen: the framebuffer is
sampled from outside every few milliseconds, by a method that shares nothing with the one that is measured.
"""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))
from common import Figures, cpu_load, median, options, percentile
from deskroll.actions import Action, Click, Hotkey, Press, Typing
from deskroll.desktops.base import Address, DesktopSpec, Observe, Settle
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers.local import places
from deskroll.desktops.providers.local.provider import LocalProvider
from deskroll.envs.osworld.elements import elements

HERE = Path(__file__).parent
STOCK = "import pyautogui; import time; pyautogui.FAILSAFE = False; "
CARET_AREA = 5_000


async def main() -> None:
    quick = options(__doc__).quick
    figures = Figures("desktop")
    async with LocalProvider() as provider:
        await provider.warm_up()
        await boots(provider, figures, 5 if quick else 25)
        await memory(provider, figures, 8)
        address = await provider.boot(DesktopSpec())
        async with GuestDesktop(address) as desktop:
            await open_program(desktop, ["mousepad"], "mousepad")
            await looks(desktop, figures, 30 if quick else 200)
            await acts(desktop, figures, 3 if quick else 15)
        await provider.stop(address.id)
        await settles(provider, figures, quick)
        await starts(provider, figures, 1 if quick else 20)
        await trees(provider, figures, 1 if quick else 5)
    figures.finish()


async def open_program(desktop: GuestDesktop, command: list[str], name: str) -> None:
    await desktop.launch(command)
    deadline = time.monotonic() + 120
    while not any(w.active and name in f"{w.wm_class} {w.title}".lower() for w in await desktop.windows()):
        if time.monotonic() > deadline:
            raise SystemExit(f"{name} did not open")
        await asyncio.sleep(0.05)


async def boots(provider: LocalProvider, figures: Figures, count: int) -> None:
    times = []
    for _ in range(count):
        began = time.perf_counter()
        address = await provider.boot(DesktopSpec())
        times.append(time.perf_counter() - began)
        await provider.stop(address.id)
    figures.add("boot_p50_s", median(times), f"one after another, {count} times; slowest {max(times):.2f}")
    began = time.perf_counter()
    addresses = await asyncio.gather(*(provider.boot(DesktopSpec()) for _ in range(32)))
    figures.add("boot_32_s", time.perf_counter() - began, "32 at once, until the last one can be used")
    await asyncio.gather(*(provider.stop(address.id) for address in addresses))


async def memory(provider: LocalProvider, figures: Figures, count: int) -> None:
    addresses = await asyncio.gather(*(provider.boot(DesktopSpec()) for _ in range(count)))
    for address in addresses:
        async with GuestDesktop(address) as desktop:
            await desktop.screenshot()
    pss = sum(_pss(pid) for pid in _descendants(_zygote_pid(addresses[0])))
    figures.add("desktop_pss_mb", pss / 1024 / len(addresses), f"each of {count} ready ones, all their processes")
    await asyncio.gather(*(provider.stop(address.id) for address in addresses))


def _sandbox_pid(address: Address) -> int:
    return next(note.sandbox_pid for note in places.notebook().list() if note.id == address.id)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _zygote_pid(address: Address) -> int:
    return _parent(_parent(_parent(_sandbox_pid(address))))  # sandbox → bubblewrap → keeper → zygote


def _descendants(pid: int) -> list[int]:
    children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return children + [below for child in children for below in _descendants(child)]


def _pss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


async def looks(desktop: GuestDesktop, figures: Figures, count: int) -> None:
    times, size = [], 0
    for _ in range(count):
        began = time.perf_counter()
        size = len(await desktop.screenshot())
        times.append((time.perf_counter() - began) * 1000)
    figures.add(
        "screenshot_png_p50_ms", median(times), f"through the socket, {size:,} bytes; p99 {percentile(times, 0.99):.1f}"
    )


async def acts(desktop: GuestDesktop, figures: Figures, count: int) -> None:
    async def ours(place: int) -> None:
        await desktop.step([Click(x=600 + place, y=500)], settle=None)

    async def stock(place: int) -> None:
        await desktop.run(["python", "-c", f"{STOCK}pyautogui.click({600 + place}, 500)"])
        await desktop.run(["scrot", "-p", "-o", "/tmp/shot.png"])
        await desktop.read_file("/tmp/shot.png")

    timed = {name: await _times(call, count * n) for name, call, n in (("ours", ours, 5), ("stock", stock, 1))}
    ours_ms, stock_ms = (median(times) * 1000 for times in timed.values())
    figures.add("act_and_shot_ms", ours_ms, "a click and a screenshot, one round trip, no settling")
    figures.add("act_and_shot_stock_ms", stock_ms, "the same the stock way")
    figures.add("act_and_shot_speedup_vs_stock", stock_ms / ours_ms)


async def _times(call: Callable[[int], Awaitable[None]], count: int) -> list[float]:
    times = []
    for place in range(count):
        began = time.perf_counter()
        await call(place)
        times.append(time.perf_counter() - began)
    return times


class Sampler:
    """Sees every change of a desktop's screen from outside: compares framebuffers every few milliseconds."""

    def __init__(self, address: Address) -> None:
        root = Path(f"/proc/{_sandbox_pid(address)}/root/run/deskroll/fb/Xvfb_screen0")
        self._file = root.open("rb", buffering=0)
        self._lock = threading.Lock()
        self.changes: list[tuple[float, int]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        self._file.close()

    def _frame(self) -> bytes:
        self._file.seek(3232)  # the header of an Xvfb screen file with 256 colours
        return self._file.read(1920 * 1080 * 4)

    def _run(self) -> None:
        last = self._frame()
        while not self._stop.wait(0.004):
            frame = self._frame()
            now = time.monotonic()
            if frame != last:
                with self._lock:
                    self.changes.append((now, _changed_area(last, frame)))
                last = frame

    def last_change(self, since: float, until: float) -> float | None:
        """When something larger than a caret changed last."""
        with self._lock:
            times = [at for at, area in self.changes if since <= at <= until and area > CARET_AREA]
        return max(times, default=None)


def _changed_area(before: bytes, after: bytes) -> int:
    one, two = (np.frombuffer(data, np.uint32).reshape(1080, 1920) for data in (before, after))
    different = one != two
    rows, columns = np.flatnonzero(different.any(1)), np.flatnonzero(different.any(0))
    return int((rows[-1] - rows[0] + 1) * (columns[-1] - columns[0] + 1)) if len(rows) else 0


@dataclass
class Case:
    """One action whose effect is known to be visible."""

    name: str
    actions: list[Action]
    after: list[Action]
    """What puts the screen back."""


@dataclass
class Outcome:
    overhead_ms: float
    correct: bool


WATCH_S = 0.6
"""How long after a step the screen is watched for changes that it missed."""


async def settles(provider: LocalProvider, figures: Figures, quick: bool) -> None:
    outcomes: dict[str, list[Outcome]] = {}
    for load in (0, 4):
        with cpu_load(load):
            label = "loaded" if load else "idle"
            outcomes[f"repaint {label}"] = await repaints(provider, 3 if quick else 40, feedback=False)
            outcomes[f"feedback {label}"] = await repaints(provider, 2 if quick else 30, feedback=True)
            outcomes[f"dialogs {label}"] = await dialogs(provider, _cases()[:2] if quick else _cases() * 12)
    for name, group in outcomes.items():
        right = sum(one.correct for one in group)
        overhead = median(outcome.overhead_ms for outcome in group)
        print(f"  settle, {name:<18} {right}/{len(group)} right, overhead p50 {overhead:.0f} ms")
    every = [outcome for group in outcomes.values() for outcome in group]
    figures.add("settle_overhead_p50_ms", median(outcome.overhead_ms for outcome in every), f"{len(every)} steps")
    figures.add("settle_correct_share", sum(outcome.correct for outcome in every) / len(every))


async def repaints(provider: LocalProvider, count: int, *, feedback: bool) -> list[Outcome]:
    """A window that repaints 50 to 400 ms after the click, in one stroke or three."""
    address = await provider.boot(DesktopSpec())
    outcomes = []
    async with GuestDesktop(address) as desktop:
        await desktop.write_file("/home/user/repainter.py", (HERE / "repainter.py").read_bytes())
        await open_program(
            desktop, ["python3", "repainter.py", "/tmp/log", "feedback" if feedback else "plain"], "repainter"
        )
        window = next(w for w in await desktop.windows() if w.title == "repainter")
        for number in range(count):
            delay = 50 + (number * 350 // max(1, count - 1))
            strokes = 1 if delay > 300 else (1, 3)[number % 2]
            place = Click(x=window.x + delay, y=window.y + strokes * 10 + 5)
            result = await desktop.step([place], settle=Settle())
            returned = time.monotonic()
            await asyncio.sleep(WATCH_S)
            painted = (await desktop.read_file("/tmp/log")).decode().split("\n")[-2].split()
            final = await desktop.screenshot()
            outcomes.append(Outcome((returned - float(painted[1])) * 1000, _same(result.screenshot, final)))
    await provider.stop(address.id)
    return outcomes


def _same(one: bytes | None, two: bytes) -> bool:
    """Whether two screens are the same but for a caret."""
    assert one is not None
    first, second = (np.asarray(Image.open(io.BytesIO(data))) for data in (one, two))
    different = (first != second).any(2)
    rows, columns = np.flatnonzero(different.any(1)), np.flatnonzero(different.any(0))
    return not len(rows) or (rows[-1] - rows[0] + 1) * (columns[-1] - columns[0] + 1) <= CARET_AREA


def _cases() -> list[Case]:
    escape: list[Action] = [Press(key="escape")]
    return [
        Case("save dialog", [Hotkey(keys=("ctrl", "s"))], escape),
        Case("open dialog", [Hotkey(keys=("ctrl", "o"))], escape),
        Case("go to line", [Hotkey(keys=("ctrl", "l"))], escape),
        Case("find and replace", [Hotkey(keys=("ctrl", "r"))], escape),
        Case("file menu", [Hotkey(keys=("alt", "f"))], escape),
    ]


async def dialogs(provider: LocalProvider, cases: list[Case]) -> list[Outcome]:
    """Dialogs of a real editor, watched from outside."""
    address = await provider.boot(DesktopSpec())
    async with GuestDesktop(address) as desktop:
        await open_program(desktop, ["mousepad"], "mousepad")
        await asyncio.sleep(0.5)
        with Sampler(address) as sampler:
            outcomes = [await _dialog(desktop, sampler, case) for case in cases]
    await provider.stop(address.id)
    return outcomes


async def _dialog(desktop: GuestDesktop, sampler: Sampler, case: Case) -> Outcome:
    began = time.monotonic()
    result = await desktop.step(case.actions, settle=Settle())
    returned = time.monotonic()
    await asyncio.sleep(WATCH_S)
    last = sampler.last_change(began, time.monotonic())
    final = await desktop.screenshot()
    await desktop.step(case.after, settle=Settle())
    await asyncio.sleep(0.3)
    if last is None:
        raise SystemExit(f"{case.name}: nothing happened on the screen")
    return Outcome((returned - min(last, returned)) * 1000, _same(result.screenshot, final))


START_CASES: list[tuple[str, list[Action]]] = [
    ("mousepad", [Typing(text="milk and honey"), Hotkey(keys=("ctrl", "s"))]),
    ("mousepad", [Hotkey(keys=("ctrl", "o"))]),
    ("galculator", [Typing(text="12*12=")]),
]
LATEST_INPUT_S = 0.3
START_WATCH_S = 2.0
"""How long after such a step the screen is watched: programs that start on a busy machine are late by seconds."""


async def starts(provider: LocalProvider, figures: Figures, rounds: int) -> None:
    """Input for a window that has just appeared, on three desktops at once, idle and at a load of 8.

    The longest wait is long, so that none is capped: what is measured is whether a screen that is said to have settled
    has.
    """
    outcomes: list[bool] = []
    for load in (0, 8):
        with cpu_load(load):
            lanes = (_lane(provider, *case, rounds) for case in START_CASES)
            right = [each for lane in await asyncio.gather(*lanes) for each in lane]
        print(f"  settle, at the start, load {load}   {sum(right)}/{len(right)} right")
        outcomes += right
    figures.add("settle_correct_share_start", sum(outcomes) / len(outcomes), f"{len(outcomes)} steps")


async def _lane(provider: LocalProvider, program: str, actions: list[Action], rounds: int) -> list[bool]:
    delays = (LATEST_INPUT_S * number / max(1, rounds - 1) for number in range(rounds))
    return [await _start(provider, program, actions, delay) for delay in delays]


async def _start(provider: LocalProvider, program: str, actions: list[Action], delay: float) -> bool:
    address = await provider.boot(DesktopSpec(width=1024, height=768))
    async with GuestDesktop(address) as desktop:
        await open_program(desktop, [program], program)
        await asyncio.sleep(delay)
        result = await desktop.step(actions, settle=Settle(cap=20.0))
        await asyncio.sleep(START_WATCH_S)
        right = _same(result.screenshot, await desktop.screenshot())
    await provider.stop(address.id)
    return right


async def trees(provider: LocalProvider, figures: Figures, count: int) -> None:
    address = await provider.boot(DesktopSpec())
    async with GuestDesktop(address) as desktop:
        await open_program(desktop, ["soffice", "--norestore", "--nologo", "--writer"], "writer")
        await asyncio.sleep(1.0)

        async def read(in_flight: int) -> float:
            began = time.perf_counter()
            nodes = (await desktop.accessibility_tree(in_flight=in_flight)).count("<")
            assert nodes > 500, "the tree of Writer is not there"
            return time.perf_counter() - began

        async def look() -> float:
            began = time.perf_counter()
            shown = Observe(screenshot=False, tree=True, shown_only=True)
            found = elements((await desktop.step([], settle=None, observe=shown)).tree or "")
            assert len(found) > 50, "the table of Writer is not there"
            return time.perf_counter() - began

        tables, pipelined, sequential = [], [], []
        for _ in range(count):
            tables.append(await look())
            pipelined.append(await read(64))
            sequential.append(await read(1))
    await provider.stop(address.id)
    figures.add("table_ms", median(tables) * 1000, "what shows of LibreOffice Writer's window, as an agent's table")
    figures.add("tree_ms", median(pipelined) * 1000, "all of it")
    figures.add("tree_sequential_ms", median(sequential) * 1000, "one question at a time")
    figures.add("tree_speedup_vs_sequential", median(sequential) / median(pipelined))


if __name__ == "__main__":
    asyncio.run(main())
