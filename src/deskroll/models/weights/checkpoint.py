"""Checkpoint: one folder with the weights of one version, checked against what is served.

    <source>/
      step_12/                          one folder a version; its name ends in the number
        model.safetensors               or model.safetensors.index.json and the shards that it names
        adapter_model.safetensors       or, of an adapter (LoRA), this alone
        READY                           or STABLE: written last, where the source writes such (`look.py`)

Guarantees: no server is asked and no tensor is read: the headers say names, shapes, kinds and offsets. What is refused
is refused with the file and the tensor (`CheckpointRefused`). vLLM itself only warns about tensors that are missing,
and by then has loaded the others over the old ones.
"""

from __future__ import annotations

import enum
import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from deskroll.errors import plain
from deskroll.models.weights.header import Tensor, open_regular, read_header
from deskroll.models.weights.refusal import CheckpointRefused, Refusal
from deskroll.types import Record

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_model.safetensors"
TEMPORARY = (".", "tmp-", "tmp_")
"""What names of folders begin with that are being written, and renamed then."""
_VERSION = re.compile(r"(?:.*\D)?(\d{1,18})", re.ASCII | re.DOTALL)
_LONGEST_INDEX = 100_000_000


class CheckpointKind(enum.StrEnum):
    """What a folder holds."""

    FULL = "full"
    """All weights of a model."""
    ADAPTER = "adapter"
    """A low-rank adapter, to be loaded beside the weights of its model."""


class Checkpoint(Record, frozen=True):
    """A folder whose files are whole, by what their headers say."""

    path: Path
    version: int
    """-1: a folder that no source counts, such as the one that a server was started on."""
    kind: CheckpointKind
    tensors: Mapping[str, Tensor]

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files with tensors, sorted."""
        return tuple(sorted({tensor.file for tensor in self.tensors.values()}))


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


def version_of(name: str) -> int | None:
    """The number that the name of a folder ends in; None where it ends in none, or is that of a temporary folder."""
    if name.startswith(TEMPORARY):
        return None
    found = _VERSION.fullmatch(name)
    return int(found[1]) if found else None


def read_checkpoint(path: Path, version: int | None = None) -> Checkpoint:
    """What lies in a folder; raises `CheckpointRefused`. `version`: none: that of the folder's name, else -1."""
    if version is None:
        number = version_of(path.name)
        version = -1 if number is None else number
    names = _names(path)
    if INDEX in names:
        kind, tensors = CheckpointKind.FULL, _indexed(path)
    elif WEIGHTS in names:
        _refuse_strays(path, names)
        kind, tensors = CheckpointKind.FULL, read_header(path / WEIGHTS)
    elif ADAPTER in names:
        kind, tensors = CheckpointKind.ADAPTER, read_header(path / ADAPTER)
    else:
        what = f"{shown(path)} holds no weights: neither {INDEX} nor {WEIGHTS} nor {ADAPTER}"
        raise CheckpointRefused(Refusal.NO_FILES, what, file=str(path))
    if not tensors:
        raise CheckpointRefused(Refusal.NO_FILES, f"{shown(path)} holds no tensor at all", file=str(path))
    return Checkpoint(path=path, version=version, kind=kind, tensors=tensors)


def check_version(version: int, served: int) -> None:
    """Refuse a version that does not rise."""
    if version <= served:
        what = f"version {version} is not above {served}, which is served; `deskroll models reload DIR` may go back"
        raise CheckpointRefused(Refusal.WENT_BACK, what)


def check_kind(new: Checkpoint, kind: CheckpointKind) -> None:
    """Refuse an adapter where whole weights are wanted, and the other way round."""
    if new.kind is not kind:
        what = f"{shown(new.path)} holds weights of kind {new.kind}, and {kind} is served (see enable_lora)"
        raise CheckpointRefused(Refusal.OTHER_KIND, what, file=str(new.path))


def check_same_tensors(new: Checkpoint, served: Checkpoint) -> None:
    """Refuse what is not the same model with other numbers."""
    for name in sorted(served.tensors.keys() - new.tensors.keys()):
        what = f"is missing in {shown(new.path)}; {shown(served.path)}, which is served, has it"
        raise _refused(Refusal.MISSING_TENSOR, new, name, what, file=served.tensors[name].file)
    for name, tensor in sorted(new.tensors.items()):
        old = served.tensors.get(name)
        place = shown(new.path / tensor.file)
        if old is None:
            what = f"{place} has it, and {shown(served.path)}, which is served, has not"
            raise _refused(Refusal.EXTRA_TENSOR, new, name, what)
        if old.shape != tensor.shape:
            what = f"it is {list(tensor.shape)} in {place}, and {list(old.shape)} in what is served"
            raise _refused(Refusal.OTHER_SHAPE, new, name, what)
        if old.dtype != tensor.dtype:
            what = f"it is {tensor.dtype} in {place}, and {old.dtype} in what is served"
            raise _refused(Refusal.OTHER_DTYPE, new, name, what)


def shown(path: Path) -> str:
    """A path in a message."""
    return plain(str(path))


def _refused(reason: Refusal, new: Checkpoint, name: str, what: str, file: str = "") -> CheckpointRefused:
    where = new.path / (file or new.tensors[name].file)
    return CheckpointRefused(reason, f"tensor {plain(name)}: {what}", file=str(where), tensor=name)


def _names(path: Path) -> set[str]:
    try:
        return {entry.name for entry in path.iterdir()}
    except FileNotFoundError:
        what = f"{shown(path)} is not there: renamed, or removed"
        raise CheckpointRefused(Refusal.MISSING_FILE, what, file=str(path)) from None
    except OSError as error:
        what = f"{shown(path)} cannot be read: {error.strerror}"
        raise CheckpointRefused(Refusal.UNREADABLE, what, file=str(path)) from None


def read_index(path: Path) -> Mapping[str, str]:
    """The file of each tensor, as the index in a folder says; raises `CheckpointRefused`."""
    file = path / INDEX
    with os.fdopen(open_regular(file), "rb") as opened:
        text = opened.read(_LONGEST_INDEX)
    try:
        found = msgspec.json.decode(text, type=_Index).weight_map
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        what = f"{shown(file)} is no index that can be read: {plain(str(error))}"
        raise CheckpointRefused(Refusal.BAD_HEADER, what, file=str(file)) from None
    for tensor, name in found.items():
        if "/" in name or "\0" in name or name in ("", ".", ".."):
            what = f"tensor {plain(tensor)}: {shown(file)} names {plain(name)!r}, which is no file beside it"
            raise CheckpointRefused(Refusal.BAD_HEADER, what, file=str(file), tensor=tensor)
    return found


def _indexed(path: Path) -> dict[str, Tensor]:
    index = read_index(path)
    files = {name: read_header(path / name) for name in sorted(set(index.values()))}
    for tensor, name in sorted(index.items()):
        if tensor not in files[name]:
            what = f"tensor {plain(tensor)}: {INDEX} says that {shown(path / name)} holds it, which does not"
            raise CheckpointRefused(Refusal.MISSING_TENSOR, what, file=str(path / name), tensor=tensor)
    for name, tensors in files.items():
        for tensor in sorted(tensors):
            if index.get(tensor) != name:
                what = f"tensor {plain(tensor)}: {shown(path / name)} holds it, and {INDEX} does not say so"
                raise CheckpointRefused(Refusal.EXTRA_TENSOR, what, file=str(path / name), tensor=tensor)
    return {tensor: files[name][tensor] for tensor, name in index.items()}


def _refuse_strays(path: Path, names: set[str]) -> None:
    strays = sorted(name for name in names if name.endswith(".safetensors") and name not in (WEIGHTS, ADAPTER))
    if strays:
        what = f"{shown(path / strays[0])} lies beside {WEIGHTS} without an {INDEX}: a server would load both"
        raise CheckpointRefused(Refusal.BAD_HEADER, what, file=str(path / strays[0]))
