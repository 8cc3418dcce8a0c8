"""Screens on a page: pictures as data URLs, small or as they are, within a budget.

A screen comes from a desktop that a model used, so it is not trusted: only PNG and JPEG of a bounded size are opened,
and what cannot be read is left out. Without Pillow (the `local` extra) screens are taken as they are.
"""

from __future__ import annotations

import base64
import enum
import io
import warnings

WIDTH = 640
"""Pixels across of a picture on the page."""
BUDGET = 40_000_000
FULL_BUDGET = 400_000_000
"""Characters of all data URLs of a page, of small pictures and of whole screens; what comes after is left out, and the
page says so."""
MAX_PIXELS = 50_000_000
MAX_BYTES = 20_000_000
_QUALITY = 72
_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"


class Screens(enum.StrEnum):
    """Which screens a page holds itself; where it lies beside its run, it links all of them."""

    FULL = "full"
    """All, as they are stored."""
    SMALL = "small"
    """All, made small."""
    LAST = "last"
    """The last one of each episode, made small."""
    NONE = "none"


class Pictures:
    """Makes data URLs of screens until the budget is used up."""

    def __init__(self, screens: Screens = Screens.SMALL, budget: int | None = None) -> None:
        self._full = screens is Screens.FULL
        self._left = budget if budget is not None else FULL_BUDGET if self._full else BUDGET
        self.left_out = 0
        """Screens for which there was no room, or which could not be read."""

    def url(self, image: bytes) -> str | None:
        """The screen as a data URL; none when it is left out."""
        made = _picture(image, full=self._full) if self._left > 0 and len(image) <= MAX_BYTES else None
        if made is None or len(made) > self._left:
            self.left_out += 1
            return None
        self._left -= len(made)
        return made


def _picture(image: bytes, *, full: bool) -> str | None:
    kind = "png" if image.startswith(_PNG) else "jpeg" if image.startswith(_JPEG) else None
    if kind is None:
        return None
    try:
        from PIL import Image, UnidentifiedImageError  # noqa: PLC0415  (an extra)
    except ImportError:
        return _data_url(kind, image)
    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(image), formats=(kind.upper(),)) as picture:
            warnings.simplefilter("ignore")  # a size that Pillow warns of is refused below
            if picture.width * picture.height > MAX_PIXELS:
                return None
            if full:
                picture.load()  # a torn one is left out, too
                return _data_url(kind, image)
            picture.draft("RGB", (WIDTH, WIDTH))
            small = picture.convert("RGB")
            small.thumbnail((WIDTH, WIDTH * 4), reducing_gap=2.0)
            out = io.BytesIO()
            small.save(out, "JPEG", quality=_QUALITY, optimize=True)
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None  # torn or forged: Pillow has no single error for that
    return _data_url("jpeg", out.getvalue())


def _data_url(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
