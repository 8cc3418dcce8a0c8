"""The size of an image, from its head."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from deskroll.agents.image import image_size


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("size", [(1, 1), (1920, 1080), (17, 3000)])
def test_an_images_size_is_read_from_its_head(kind: str, size: tuple[int, int]) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", size, "red").save(buffer, kind, **({"comment": b"x" * 300} if kind == "JPEG" else {}))
    assert image_size(buffer.getvalue()) == size


@given(st.binary(max_size=60), st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0"]))
def test_broken_images_have_no_size(data: bytes, head: bytes) -> None:
    size = image_size(head + data)
    assert size is None or all(0 < side < 65_536 for side in size)
