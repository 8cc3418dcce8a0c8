"""Header: what a safetensors file says that it holds, read without any tensor.

A file is 8 bytes with the length of the header, the header (JSON: name → dtype, shape, offsets), then the tensors.

Guarantees: of a header that is returned, every tensor lies inside of the file, is as long as its shape says, and no
byte is left over or used twice; a file that is no regular one is refused (a pipe would keep its reader for ever).
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from deskroll.errors import plain
from deskroll.models.weights.refusal import CheckpointRefused, Refusal
from deskroll.types import Record

LONGEST_HEADER = 100_000_000
"""Bytes; what safetensors itself allows."""
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
"""Bits of one number of each kind."""


class Tensor(Record, frozen=True):
    """One tensor as its file describes it."""

    dtype: str
    shape: tuple[int, ...]
    file: str
    """The name of its file within the checkpoint."""
    begin: int
    """Where it begins in the file, in bytes."""
    end: int


class _Entry(msgspec.Struct):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def read_header(path: Path) -> dict[str, Tensor]:
    """The tensors of one file by name; raises `CheckpointRefused`."""
    with os.fdopen(open_regular(path), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > LONGEST_HEADER or 8 + length > size:
            what = f"has {size} bytes, and its header alone would have {length}"
            raise _refused(Refusal.TRUNCATED if length <= LONGEST_HEADER else Refusal.BAD_HEADER, path, what)
        text = file.read(length)
    tensors = _entries(path, text, 8 + length)
    _check_offsets(path, tensors, 8 + length, size)
    return tensors


def open_regular(path: Path) -> int:
    """A descriptor of a file that is a regular one; raises `CheckpointRefused`."""
    try:
        found = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise _refused(Refusal.MISSING_FILE, path, "is not there") from None
    except OSError as error:
        raise _refused(Refusal.UNREADABLE, path, f"cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(found).st_mode):
        os.close(found)
        raise _refused(Refusal.UNREADABLE, path, "is not a regular file")
    return found


def _entries(path: Path, text: bytes, start: int) -> dict[str, Tensor]:
    try:
        fields: Mapping[str, msgspec.Raw] = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        found = {name: msgspec.json.decode(raw, type=_Entry) for name, raw in fields.items() if name != "__metadata__"}
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _refused(Refusal.BAD_HEADER, path, f"has a header that cannot be read: {plain(str(error))}") from None
    return {
        name: Tensor(
            dtype=entry.dtype,
            shape=entry.shape,
            file=path.name,
            begin=start + entry.data_offsets[0],
            end=start + entry.data_offsets[1],
        )
        for name, entry in found.items()
    }


def _check_offsets(path: Path, tensors: Mapping[str, Tensor], start: int, size: int) -> None:
    at = start
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].begin, item[1].end)):
        if tensor.dtype not in BITS:
            raise _refused(Refusal.BAD_HEADER, path, f"holds numbers of an unknown kind, {tensor.dtype!r}", name)
        bits = math.prod(tensor.shape) * BITS[tensor.dtype]
        if min(tensor.shape, default=0) < 0 or bits % 8 or tensor.end - tensor.begin != bits // 8:
            what = (
                f"gives it {tensor.end - tensor.begin} bytes, where {tensor.dtype} {list(tensor.shape)} has {bits // 8}"
            )
            raise _refused(Refusal.BAD_OFFSETS, path, what, name)
        if tensor.begin != at:
            what = f"lets it begin at byte {tensor.begin}, where the one before it ends at {at}"
            raise _refused(Refusal.BAD_OFFSETS, path, what, name)
        if tensor.end > size:
            what = f"has {size} bytes, and it would end at byte {tensor.end}: the file is truncated, or still written"
            raise _refused(Refusal.TRUNCATED, path, what, name)
        at = tensor.end
    if at != size:
        raise _refused(Refusal.BAD_OFFSETS, path, f"has {size} bytes, and its tensors end at byte {at}")


def _refused(reason: Refusal, path: Path, what: str, tensor: str = "") -> CheckpointRefused:
    about = f"tensor {plain(tensor)}: " if tensor else ""
    return CheckpointRefused(reason, f"{about}{plain(str(path))} {what}", file=str(path), tensor=tensor)
