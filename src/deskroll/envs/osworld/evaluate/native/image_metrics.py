"""Native metrics on images: sizes, and whether two show the same. Each judges as upstream's of that name does.

An image that is too small to have structure scores 0, also where upstream's stumbles over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from deskroll.envs.osworld.evaluate.native.images import WINDOW, looked_at, opened, similarity
from deskroll.envs.osworld.evaluate.native.values import File, file_of, rules_of

if TYPE_CHECKING:
    from PIL import Image

Options = Mapping[str, Any]
_ALIKE = 0.9
_MIRRORED = 0.99
_GAIN = 0.01
"""By how much `reference_base_result` must be surpassed."""


def check_image_size(result: Any, expected: Any, options: Options) -> float:
    """Whether an image has this `width` and `height`; what is transparent around it may be left out."""
    rules = rules_of(expected)
    file = file_of(result, "result")
    image = looked_at(file)
    size = image.size
    # As upstream has it: an image with one transparent colour is always cut, one with an alpha channel if it is asked.
    asked = rules.get("ignore_transparent", False) and image.mode in ("RGBA", "LA")
    if asked or "transparency" in image.info:
        left, top, right, bottom = opened(file).convert("RGBA").getchannel("A").getbbox() or (0, 0, 0, 0)
        size = (right - left, bottom - top)
    wanted = (rules.get("width"), rules.get("height"))
    return float(all(want is None or want == have for want, have in zip(wanted, size, strict=True)))


def check_image_file_size(result: Any, expected: Any, options: Options) -> float:
    """Whether a file has less than `max_size` bytes."""
    return float(len(file_of(result, "result").data) < rules_of(expected)["max_size"])


def check_structure_sim(result: Any, expected: Any, options: Options) -> float:
    """Whether two images of one size show nearly the same."""
    return float(_are_alike(*_images(result, expected), least=_ALIKE))


def check_image_mirror(result: Any, expected: Any, options: Options) -> float:
    """Whether one image is the other one, seen in a mirror."""
    from PIL import Image  # noqa: PLC0415  (of an extra)

    one, two = _images(result, expected)
    return float(_are_alike(one.transpose(Image.Transpose.FLIP_LEFT_RIGHT), two, least=_MIRRORED))


def compare_images(result: Any, expected: Any, options: Options) -> float:
    """How alike two images are in grey, at the size of the smaller; above `reference_base_result`, if that is given."""
    from PIL import Image  # noqa: PLC0415  (of an extra)

    grey = [image.convert("L") for image in _images(result, expected)]
    size = min(image.size for image in grey)
    if min(size) < WINDOW:
        return 0.0
    one, two = (image.resize(size, Image.Resampling.LANCZOS) for image in grey)
    found, base = similarity(one, two), options.get("reference_base_result")
    if base is None:
        return found
    return (found - base) / (1 - base) if found >= base + _GAIN else 0.0


def compare_image_list(result: Any, expected: Any, options: Options) -> float:
    """Whether each image is the expected one to the pixel, at the size of that."""
    pairs = zip(result, expected, strict=False) if isinstance(result, list) else [(result, expected)]
    return float(all(isinstance(one, File) and isinstance(two, File) and _is_same(one, two) for one, two in pairs))


def _is_same(result: File, expected: File) -> bool:
    from PIL import Image, ImageChops  # noqa: PLC0415  (of an extra)

    one, two = _images(result, expected)
    if one.size != two.size:
        one = one.resize(two.size, Image.Resampling.LANCZOS)
    if one.mode != two.mode:
        one = one.convert(two.mode)
    return ImageChops.difference(one, two).getbbox() is None


def _are_alike(one: Image.Image, two: Image.Image, *, least: float) -> bool:
    if one.size != two.size or min(one.size) < WINDOW:
        return False
    return similarity(one.convert("RGB"), two.convert("RGB")) >= least


def _images(result: Any, expected: Any) -> tuple[Image.Image, Image.Image]:
    """Without the transparency of single colours, which no comparison looks at and conversion complains of."""
    found = opened(file_of(result, "result")), opened(file_of(expected, "expected"))
    for image in found:
        image.info.pop("transparency", None)
    return found
