"""Encoded frames, decoded again by another library."""

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from deskroll.desktops.x11.capture import Frame
from deskroll.desktops.x11.encode import jpeg, png


def decode(encoded: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(encoded))
    image.load()
    return image


def rgb_of(frame: Frame) -> np.ndarray:
    raw = np.ndarray((frame.height, frame.width, 4), np.uint8, frame.data, 0, (frame.stride, 4, 1))
    return raw[:, :, 2::-1]


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    """Frames of flat areas, noise and gradients, wide enough at times to fill several blocks of rows."""
    width = draw(st.integers(1, 40) | st.sampled_from([1366, 4000, 16_384]))
    height = draw(st.integers(1, 30) if width > 40 else st.integers(1, 120))
    stride = width * 4 + draw(st.integers(0, 70))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = np.arange(height * stride, dtype=np.uint32).reshape(height, stride)
    kinds = {
        "noise": rng.integers(0, 256, (height, stride)),
        "gradient": rows // 7,
        "flat": np.full((height, stride), draw(st.integers(0, 255))),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=height, max_size=height))
    data = np.stack([kinds[kind][n] for n, kind in enumerate(chosen)]).astype(np.uint8)
    return Frame(width, height, stride, data.tobytes())


@settings(max_examples=200)
@given(frame=frames())
def test_a_png_decodes_to_the_same_pixels(frame: Frame) -> None:
    image = decode(png(frame))
    assert (image.format, image.mode, image.size) == ("PNG", "RGB", (frame.width, frame.height))
    assert np.array_equal(np.asarray(image), rgb_of(frame))


@settings(max_examples=50)
@given(frame=frames())
def test_the_unused_byte_does_not_show(frame: Frame) -> None:
    data = np.frombuffer(frame.data, np.uint8).reshape(frame.height, frame.stride).copy()
    data[:, 3 : frame.width * 4 : 4] ^= 0x5A
    assert png(Frame(frame.width, frame.height, frame.stride, data.tobytes())) == png(frame)


def test_a_full_screen_survives() -> None:
    rng = np.random.default_rng(5)
    raw = np.full((1080, 1920, 4), 240, np.uint8)
    raw[100:400, 200:900] = rng.integers(0, 256, (300, 700, 4))
    raw[500:900, :, :3] = np.arange(1920)[None, :, None] // 8
    frame = Frame(1920, 1080, 7680, raw.tobytes())
    assert np.array_equal(np.asarray(decode(png(frame))), rgb_of(frame))


def test_smooth_pictures_are_filtered() -> None:
    y, x = np.mgrid[0:400, 0:600]
    raw = np.stack([x + y, x * 2 + y, x + y * 2, x * 0], axis=-1).astype(np.uint8)
    assert len(png(Frame(600, 400, 2400, raw.tobytes()))) < raw.nbytes / 100


def test_a_jpeg_shows_nearly_the_same() -> None:
    y, x = np.mgrid[0:101, 0:203]
    raw = np.stack([x, y, 255 - x, x * 0], axis=-1).astype(np.uint8)
    data = np.zeros((101, 203 * 4 + 20), np.uint8)
    data[:, : 203 * 4] = raw.reshape(101, -1)
    frame = Frame(203, 101, 203 * 4 + 20, data.tobytes())
    image = decode(jpeg(frame))
    assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (203, 101))
    assert np.abs(np.asarray(image).astype(int) - rgb_of(frame)).mean() < 3
    assert len(jpeg(frame, quality=20)) < len(jpeg(frame, quality=90))


def test_a_jpeg_of_impossible_quality_is_refused() -> None:
    with pytest.raises(ValueError, match="quality is 96; allowed: 1 to 95"):
        jpeg(Frame(1, 1, 4, b"\0" * 4), quality=96)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 70)), min_size=1, max_size=12), st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_rows_that_repeat_over_blocks_come_back_as_they_were(bands: list[tuple[int, int]], seed: int) -> None:
    """Bands of equal rows, higher and lower than a block: each row is one of four, plain, noisy or half and half."""
    random = np.random.default_rng(seed)
    noisy = random.integers(0, 256, (4, 1920, 4), np.uint8)
    noisy[0] = 77
    noisy[1, 960:] = 200
    pixels = np.concatenate([np.repeat(noisy[kind][None], rows, 0) for kind, rows in bands])
    frame = Frame(1920, len(pixels), 1920 * 4, pixels.tobytes())
    assert np.array_equal(np.asarray(decode(png(frame))), rgb_of(frame))
