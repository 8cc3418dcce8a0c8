"""Stored screens, opened with care: a model used the desktop that they come from.

Only PNG and JPEG of a bounded size are opened; what cannot be is a StoreError that names the file.
"""

from __future__ import annotations

import io
import warnings

from deskroll.errors import MissingDependency, StoreError, plain

try:
    from PIL import Image, UnidentifiedImageError
except ImportError as error:
    raise MissingDependency("screens need Pillow to be opened: pip install 'deskroll[local]'") from error

MAX_PIXELS = 50_000_000


def open_image(image: bytes, name: str) -> Image.Image:
    """The picture, as RGB; `name` is what an error calls it."""
    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(image), formats=("PNG", "JPEG")) as picture:
            warnings.simplefilter("ignore")  # a size that Pillow warns of is refused below
            if picture.width * picture.height > MAX_PIXELS:
                raise StoreError(f"{plain(name)} has {picture.width}x{picture.height} pixels: too many to open")
            return picture.convert("RGB")
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        # torn or forged: Pillow has no single error for that
        raise StoreError(f"{plain(name)} is not a picture that can be read: {plain(str(error))}") from error


def fitted(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    """The picture in that size: as it is where it has it, else scaled into it on black."""
    if picture.size == size:
        return picture
    small = picture.copy()
    small.thumbnail(size)
    whole = Image.new("RGB", size)
    whole.paste(small)
    return whole
