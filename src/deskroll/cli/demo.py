"""`deskroll demo`: four real desktops side by side, a real program in each, worked by mouse and keyboard.

Each scene ends by checking what it did (a file that was saved, a result that is shown), so a demo that says `ok` has
seen it, not assumed it.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from deskroll.errors import DeskrollError, DesktopError, InputError

if TYPE_CHECKING:
    from deskroll.actions import Action
    from deskroll.desktops.base import StepResult, Window
    from deskroll.desktops.guest.client import GuestDesktop
    from deskroll.desktops.providers.local.provider import LocalProvider

PATIENCE_S = 30.0
SIZE = (1024, 640)
T = TypeVar("T")
TEXT = "Typed into a real editor: ASCII, 中文 and ümläuts."


@dataclass
class Stage:
    """One desktop of the demo, and what happened on it."""

    desktop: GuestDesktop
    boot_s: float
    done: list[str] = field(default_factory=list)
    steps: int = 0
    act_s: float = 0.0
    settle_s: float = 0.0
    result: str = ""

    async def step(self, what: str, *actions: Action) -> StepResult:
        """Perform actions and note them."""
        result = await self.desktop.step(actions)
        for one in result.results:
            if not one.ok:
                raise DesktopError(f"{what}: {one.error}")
        self.done.append(what)
        self.steps += 1
        self.act_s += result.seconds["act"]
        self.settle_s += result.seconds.get("settle", 0.0)
        return result

    async def window(self, name: str) -> Window:
        """Wait until a window of that class or title is there and in front."""

        async def find() -> Window | None:
            for window in await self.desktop.windows():
                if window.active and name.lower() in f"{window.wm_class} {window.title}".lower():
                    return window
            return None

        return await _until(find, f"no window {name!r} came up")

    async def button(self, name: str) -> tuple[int, int]:
        """The middle of a button, found in the accessibility tree."""

        async def find() -> tuple[int, int] | None:
            return _button_place(await self.desktop.accessibility_tree(), name)

        return await _until(find, f"no button {name!r} is on the screen")


async def _until(find: Callable[[], Awaitable[T | None]], otherwise: str) -> T:
    deadline = time.monotonic() + PATIENCE_S
    while (found := await find()) is None:
        if time.monotonic() > deadline:
            raise DesktopError(f"{otherwise} within {PATIENCE_S:g} s")
        await asyncio.sleep(0.03)
    return found


def _button_place(tree: str, name: str) -> tuple[int, int] | None:
    for tag in re.findall(r"<(?:push|toggle)-button [^>]*>", tree):
        place = re.search(r'cp:screencoord="\((\d+), (\d+)\)"', tag)
        size = re.search(r'cp:size="\((\d+), (\d+)\)"', tag)
        if f'name="{name}"' in tag and place and size:
            return int(place[1]) + int(size[1]) // 2, int(place[2]) + int(size[2]) // 2
    return None


async def editor(stage: Stage) -> None:
    """Write a text and save it through the program's own dialog."""
    from deskroll.actions import Hotkey, Press, Typing  # noqa: PLC0415

    await stage.desktop.launch(["mousepad"])
    await stage.window("mousepad")
    await stage.step(f"type {len(TEXT)} characters", Typing(text=TEXT))
    await stage.step("press ctrl+s", Hotkey(keys=("ctrl", "s")))
    await stage.window("save")
    await stage.step("type a file name", Typing(text="/home/user/Documents/note.txt"))
    await stage.step("press enter", Press(key="enter"))

    async def saved() -> str | None:
        try:
            return (await stage.desktop.read_file("Documents/note.txt")).decode().strip() or None
        except DesktopError:
            return None

    stage.result = await _until(saved, "the text was not saved")
    _expect(stage.result, TEXT)


async def calculator(stage: Stage) -> None:
    """Click a sum together and read the display."""
    from deskroll.actions import Click  # noqa: PLC0415

    await stage.desktop.launch(["galculator"])
    await stage.window("galculator")
    clicks = [Click(x=x, y=y) for x, y in [await stage.button(key) for key in "12*34="]]
    await stage.step("click 1 2 * 3 4 =", *clicks)

    async def shown() -> str | None:
        texts = re.findall(r"<text [^>]*>([^<]+)</text>", await stage.desktop.accessibility_tree())
        return next((text.strip() for text in texts if text.strip() == "408"), None)

    stage.result = f"12 * 34 = {await _until(shown, 'the display does not show 408')}"


async def terminal(stage: Stage) -> None:
    """Click into a terminal, type a command, read what it wrote."""
    from deskroll.actions import Click, Typing  # noqa: PLC0415

    await stage.desktop.launch(["xterm", "-fa", "DejaVu Sans Mono", "-fs", "12"])
    window = await stage.window("xterm")
    await stage.step("click into the terminal", Click(x=window.x + 50, y=window.y + 50))
    await stage.step("type a command", Typing(text="whoami | tee who.txt; uname -s; ls /home\n"))

    async def written() -> str | None:
        try:
            return (await stage.desktop.read_file("who.txt")).decode().strip() or None
        except DesktopError:
            return None

    stage.result = f"whoami says {await _until(written, 'the command wrote nothing')}"
    _expect(stage.result, "whoami says user")


async def files(stage: Stage) -> None:
    """Make a folder with the file manager and see it on disk."""
    from deskroll.actions import Hotkey, Typing  # noqa: PLC0415

    await stage.desktop.launch(["pcmanfm"])
    await stage.window("pcmanfm")
    await stage.step("press ctrl+shift+n", Hotkey(keys=("ctrl", "shift", "n")))
    await stage.window("new folder")
    await stage.step("name the folder, press enter", Typing(text="trajectories\n"))

    async def made() -> str | None:
        listing = (await stage.desktop.run(["ls", "/home/user"])).output
        return "trajectories" if "trajectories" in listing.split() else None

    stage.result = f"folder {await _until(made, 'the folder was not made')} is there"


def _expect(seen: str, wanted: str) -> None:
    if seen != wanted:
        raise DesktopError(f"expected {wanted!r}, but it is {seen!r}")


SCENES: dict[str, Callable[[Stage], Awaitable[None]]] = {
    "mousepad": editor,
    "galculator": calculator,
    "xterm": terminal,
    "pcmanfm": files,
}


@click.command(epilog="Example:  deskroll demo --output-dir pictures")
@click.option(
    "--output-dir", default="demo-out", show_default=True, type=click.Path(path_type=Path), help="For the pictures."
)
@click.option(
    "--isolation", default="bwrap", show_default=True, type=click.Choice(["bwrap", "none"]),
    help="none: no sandbox, for machines that allow no namespaces.",
)  # fmt: skip
@click.pass_context
def demo(ctx: click.Context, output_dir: Path, isolation: str) -> None:
    """Boot four desktops side by side, work a real program in each, save a picture of each screen.

    Needs no key, no VM and no container engine. Exits with 1 when something did not come out as it should.
    """
    try:
        output_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {output_dir}: {error.strerror}") from error
    ctx.exit(0 if asyncio.run(_play(output_dir, isolation)) else 1)


async def _play(folder: Path, isolation: str) -> bool:
    from deskroll.desktops.providers.local.provider import LocalProvider  # noqa: PLC0415

    began = time.monotonic()
    click.echo(f"Booting {len(SCENES)} desktops ...")
    async with LocalProvider(isolation=isolation) as provider:
        await provider.warm_up()
        ready = time.monotonic()
        outcomes = await asyncio.gather(*(_scene(provider, name, folder) for name in SCENES))
        played = time.monotonic()
    click.echo(
        f"\n{sum(outcomes)} of {len(SCENES)} scenes came out right in {played - ready:.1f} s, all at once\n"
        f"({time.monotonic() - began:.1f} s with starting and cleaning up)."
    )
    click.echo(f"Pictures: {_contact_sheet(folder)} and one of each desktop beside it")
    return all(outcomes)


def _contact_sheet(folder: Path) -> Path:
    """All four screens in one picture, at half size."""
    from PIL import Image  # noqa: PLC0415

    width, height = SIZE[0] // 2, SIZE[1] // 2
    gap = 8
    sheet = Image.new("RGB", (2 * width + 3 * gap, 2 * height + 3 * gap), "white")
    for place, name in enumerate(SCENES):
        if not (folder / f"{name}.png").exists():
            continue
        with Image.open(folder / f"{name}.png") as screen:
            small = screen.resize((width, height), Image.Resampling.LANCZOS)
        sheet.paste(small, (gap + place % 2 * (width + gap), gap + place // 2 * (height + gap)))
    path = folder / "all.png"
    sheet.save(path, optimize=True)
    return path


async def _scene(provider: LocalProvider, name: str, folder: Path) -> bool:
    from deskroll.desktops.base import DesktopSpec  # noqa: PLC0415
    from deskroll.desktops.guest.client import GuestDesktop  # noqa: PLC0415

    began = time.monotonic()
    try:
        address = await provider.boot(DesktopSpec(width=SIZE[0], height=SIZE[1]))
    except DesktopError as error:
        click.echo(f"\n{click.style(name, bold=True)}: {click.style('failed', fg='red')}  {error}")
        return False
    async with GuestDesktop(address) as desktop:
        stage = Stage(desktop, time.monotonic() - began)
        problem = ""
        try:
            await SCENES[name](stage)
        except DeskrollError as error:
            problem = str(error)
        picture = folder / f"{name}.png"
        picture.write_bytes(await desktop.screenshot())
    _tell(name, stage, time.monotonic() - began, problem)
    return not problem


def _tell(name: str, stage: Stage, seconds: float, problem: str) -> None:
    sign = click.style("failed", fg="red") if problem else click.style("ok", fg="green")
    click.echo(f"\n{click.style(name, bold=True)}: {sign}  {problem or stage.result}")
    click.echo(f"  did:   {'; '.join(stage.done) or 'nothing'}")
    click.echo(
        f"  time:  boot {stage.boot_s:.2f} s, {stage.steps} step{'s' * (stage.steps != 1)} "
        f"(acting {stage.act_s:.2f} s, settling {stage.settle_s:.2f} s), {seconds:.2f} s in all"
    )
