"""What every kind of observation must do, with what desktops send, right or broken."""

from __future__ import annotations

import io

import pytest

from deskroll.desktops.base import StepResult
from deskroll.envs.osworld.observation import ObservationType, Shown
from deskroll.envs.osworld.scaling import Scale
from deskroll.testing import Chosen

SCREEN, PICTURE = (640, 480), (320, 240)
_NS = "https://accessibility.ubuntu.example.org/ns"
TREE = (
    f'<desktop-frame xmlns:st="{_NS}/state" xmlns:cp="{_NS}/component">'
    '<push-button name="Save" st:enabled="true" st:visible="true" st:showing="true" '
    'cp:screencoord="(100, 200)" cp:size="(80, 40)"/></desktop-frame>'
)
_BROKEN = ("", "<", "<a>", "no tree at all", f"<!DOCTYPE x>{TREE}", TREE.replace("(100, 200)", "(x)"))


def png() -> bytes:
    """A screen on which something is to be seen."""
    from PIL import Image, ImageDraw  # noqa: PLC0415

    image = Image.new("RGB", SCREEN, "navy")
    ImageDraw.Draw(image).rectangle((110, 210, 150, 230), fill="white")
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def make(chosen: Chosen) -> ObservationType:
    """The observation."""
    kind: ObservationType = chosen.load()(chosen.settings())
    return kind


def seen(kind: ObservationType, tree: str | None = TREE) -> StepResult:
    """What a desktop brings that is asked for what the kind wants."""
    return StepResult(screenshot=png() if kind.screenshot else None, tree=tree if kind.tree else None)


def check_shown(kind: ObservationType, shown: Shown) -> None:
    """That it can be shown."""
    from PIL import Image  # noqa: PLC0415

    assert isinstance(shown, Shown)
    if shown.screenshot is not None:
        assert Image.open(io.BytesIO(shown.screenshot)).size == SCREEN
    assert shown.text is None or isinstance(shown.text, str)
    assert (shown.marks is not None) == kind.marked
    for x, y in shown.marks or ():
        assert 0 <= x < SCREEN[0]
        assert 0 <= y < SCREEN[1]


@pytest.mark.parametrize("picture", [SCREEN, PICTURE], ids=["whole", "half"])
def test_something_is_shown(chosen: Chosen, picture: tuple[int, int]) -> None:
    """A picture in the screen's own size, a text, or both; marks are points of the screen."""
    kind = make(chosen)
    shown = kind.show(seen(kind), Scale(screen=SCREEN, shown=picture))
    check_shown(kind, shown)
    assert shown.screenshot or shown.text
    if kind.marked:
        assert shown.marks


@pytest.mark.parametrize("tree", [None, *_BROKEN], ids=range(1 + len(_BROKEN)))
def test_a_tree_that_is_missing_or_broken_is_no_crash(chosen: Chosen, tree: str | None) -> None:
    """It comes from the desktop, where anything may be."""
    kind = make(chosen)
    check_shown(kind, kind.show(seen(kind, tree), Scale(screen=SCREEN, shown=PICTURE)))


def test_what_is_seen_does_not_depend_on_what_was(chosen: Chosen) -> None:
    """It is asked from several threads, and keeps nothing of the last screen."""
    kind, scale = make(chosen), Scale(screen=SCREEN, shown=PICTURE)
    first = kind.show(seen(kind), scale)
    kind.show(seen(kind, None), scale)
    assert kind.show(seen(kind), scale) == first
