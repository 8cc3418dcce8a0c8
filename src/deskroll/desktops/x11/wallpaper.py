"""The picture behind all windows."""

from __future__ import annotations

from pathlib import Path

from PIL import Image
from Xlib import X
from Xlib.display import Display
from Xlib.xobject.drawable import Pixmap
from Xlib.xobject.fontable import GC

MAX_PIXELS = 64_000_000
_REQUEST_BYTES = 200_000


def load(path: Path, width: int, height: int) -> Image.Image:
    """Read a picture and fit it to the screen. Raises OSError or ValueError when it is none."""
    with Image.open(path) as picture:
        if picture.width * picture.height > MAX_PIXELS:
            raise ValueError(f"{path} has {picture.width}x{picture.height} pixels; at most {MAX_PIXELS} are allowed")
        return picture.convert("RGB").resize((width, height))


def show(display: Display, picture: Image.Image) -> None:
    """Make the picture the root window's background."""
    root = display.screen().root
    pixmap = root.create_pixmap(picture.width, picture.height, display.screen().root_depth)
    context = pixmap.create_gc()
    _draw(pixmap, context, picture, display.screen().root_depth)
    root.change_attributes(background_pixmap=pixmap)
    root.clear_area()
    context.free()
    pixmap.free()
    # Programs that draw a picture of their own behind windows announce it here; ours is the root's background.
    root.delete_property(display.intern_atom("_XROOTPMAP_ID"))
    display.sync()


def _draw(pixmap: Pixmap, context: GC, picture: Image.Image, depth: int) -> None:
    """Draw in bands, each small enough for one request."""
    band = max(1, _REQUEST_BYTES // (picture.width * 4))
    for top in range(0, picture.height, band):
        part = picture.crop((0, top, picture.width, min(top + band, picture.height)))
        pixels = part.tobytes("raw", "BGRX")
        pixmap.put_image(context.id, 0, top, part.width, part.height, X.ZPixmap, depth, 0, pixels)
