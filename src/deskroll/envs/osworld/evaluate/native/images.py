"""Reads images and compares them, by Pillow and numpy (of the extra `local`).

Guarantees: no image of more than `_PIXELS` pixels is unpacked, and whatever is wrong raises `Unreadable`.
"""

from __future__ import annotations

import io
from importlib.util import find_spec
from typing import TYPE_CHECKING

from deskroll.envs.osworld.evaluate.native.values import File, NotComparable, Unreadable

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

WINDOW = 7
"""The side of the squares that structure is compared in; smaller images have none."""
_PIXELS = 40_000_000
_ROWS = 256
_KINDS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "ICO", "PPM")
_NEEDED = ("PIL", "numpy")


def has_libraries() -> bool:
    """Whether images can be judged here."""
    return all(find_spec(name) is not None for name in _NEEDED)


def opened(file: File) -> Image.Image:
    """The image, unpacked."""
    image = looked_at(file)
    try:
        image.load()
    except Exception as error:  # noqa: BLE001  (readers of images raise whatever they stumble over)
        raise Unreadable(f"{file.name} is no whole image: {error}") from None
    return image


def image_size(file: File) -> list[int]:
    """Its width and height."""
    return list(looked_at(file).size)


def looked_at(file: File) -> Image.Image:
    """The image, not unpacked yet."""
    if not has_libraries():
        raise NotComparable(f"images need {' and '.join(_NEEDED)}: pip install 'deskroll[local]'")
    from PIL import Image  # noqa: PLC0415  (of an extra)

    try:
        image = Image.open(io.BytesIO(file.data), formats=_KINDS)
    except Exception as error:  # noqa: BLE001  (see above)
        raise Unreadable(f"{file.name} is no image: {error}") from None
    if image.width * image.height > _PIXELS:
        raise Unreadable(f"{file.name} has more than {_PIXELS} pixels")
    return image


def similarity(one: Image.Image, two: Image.Image) -> float:
    """How alike the structure of two images of one size and mode is: SSIM, the mean over all channels; at most 1."""
    import numpy as np  # noqa: PLC0415  (of an extra)

    planes = zip(one.split(), two.split(), strict=True)
    return float(np.mean([_of_planes(np.asarray(a), np.asarray(b)) for a, b in planes]))


def _of_planes(one: np.ndarray, two: np.ndarray) -> float:
    """In bands of rows, so that memory is bounded."""
    total, count = 0.0, 0
    for top in range(0, one.shape[0] - WINDOW + 1, _ROWS):
        band = slice(top, top + _ROWS + WINDOW - 1)
        found = _of_squares(one[band].astype(float), two[band].astype(float))
        total, count = total + float(found.sum()), count + found.size
    return total / count


def _of_squares(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """For each square: context, variances and covariance (of samples), and how far they agree."""
    steady, varied = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    sample = WINDOW**2 / (WINDOW**2 - 1)
    mean_1, mean_2 = _context(one), _context(two)
    spread = sample * (_context(one * one) - mean_1**2 + _context(two * two) - mean_2**2)
    common = sample * (_context(one * two) - mean_1 * mean_2)
    light = (2 * mean_1 * mean_2 + steady) / (mean_1**2 + mean_2**2 + steady)
    found: np.ndarray = light * (2 * common + varied) / (spread + varied)
    return found


def _context(plane: np.ndarray) -> np.ndarray:
    from numpy.lib.stride_tricks import sliding_window_view  # noqa: PLC0415  (of an extra)

    rows = sliding_window_view(plane, WINDOW, axis=0).mean(axis=-1)
    found: np.ndarray = sliding_window_view(rows, WINDOW, axis=1).mean(axis=-1)
    return found
