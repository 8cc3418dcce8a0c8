"""Checkpoints: what is whole is read; what is not is refused with its file and tensor."""

from __future__ import annotations

import json
import os
import shutil
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskroll.models.weights.checkpoint import (
    CheckpointKind,
    check_same_tensors,
    check_version,
    read_checkpoint,
    version_of,
)
from deskroll.models.weights.digest import tensors_digest
from deskroll.models.weights.refusal import CheckpointRefused, Refusal
from tests.models.weights.files import TENSORS, one_file, open_folder, powerless, raw, safetensors, sharded


def refused(path: Path) -> CheckpointRefused:
    with pytest.raises(CheckpointRefused) as caught:
        read_checkpoint(path)
    return caught.value


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("12", 12), ("step_12", 12), ("checkpoint-12", 12), ("0", 0), ("epoch_3-step_0012", 12), ("v2", 2),
        ("step_12_old", None), ("latest", None), ("", None), (".step_12", None), ("tmp-checkpoint-12", None),
        ("step_١٢", None), ("step_" + "9" * 40, None),
    ],
)  # fmt: skip
def test_the_version_is_the_number_that_the_name_ends_in(name: str, version: int | None) -> None:
    assert version_of(name) == version


def test_one_file_and_shards_are_read_alike(tmp_path: Path) -> None:
    one, several = read_checkpoint(one_file(tmp_path / "step_3")), read_checkpoint(sharded(tmp_path / "step_4"))
    assert (one.version, several.version) == (3, 4)
    assert {name: tensor.shape for name, tensor in one.tensors.items()} == TENSORS
    assert one.kind is CheckpointKind.FULL
    assert len(several.files) == 3
    check_same_tensors(several, one)
    assert tensors_digest(one) == tensors_digest(several)
    other = read_checkpoint(one_file(tmp_path / "step_5", fill=0.25))
    assert tensors_digest(other) != tensors_digest(one)


def test_an_adapter_is_known_as_one(tmp_path: Path) -> None:
    (tmp_path / "adapter_model.safetensors").write_bytes(safetensors({"a": (2, 8), "b": (8, 2)}))
    found = read_checkpoint(tmp_path)
    assert (found.kind, set(found.tensors)) == (CheckpointKind.ADAPTER, {"a", "b"})


def test_a_truncated_file_is_refused_with_the_tensor_that_is_cut(tmp_path: Path) -> None:
    file = one_file(tmp_path / "step_1") / "model.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[:-40])
    found = refused(file.parent)
    assert (found.reason, found.file, found.tensor) == (Refusal.TRUNCATED, str(file), "layer.weight")
    assert "layer.weight" in str(found)
    assert str(file) in str(found)


@given(cut=st.integers(min_value=0, max_value=len(safetensors()) - 1))
def test_a_file_that_is_half_written_is_refused_wherever_it_ends(cut: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "model.safetensors").write_bytes(safetensors()[:cut])
        assert refused(Path(name)).reason is Refusal.TRUNCATED


@given(at=st.integers(min_value=0, max_value=len(safetensors()) - 1), bits=st.integers(min_value=1, max_value=255))
def test_a_file_with_a_changed_byte_is_read_or_refused_and_nothing_else(at: int, bits: int) -> None:
    data = bytearray(safetensors())
    data[at] ^= bits
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "model.safetensors").write_bytes(data)
        try:
            found = read_checkpoint(Path(name))
        except CheckpointRefused as error:
            assert error.file.endswith("model.safetensors")
        else:
            assert all(tensor.end <= len(data) for tensor in found.tensors.values())


@pytest.mark.parametrize(
    ("header", "data", "reason"),
    [
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, b"1234", Refusal.TRUNCATED),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, bytes(12), Refusal.BAD_OFFSETS),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [-4, 4]}}, bytes(4), Refusal.BAD_OFFSETS),
        ({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, bytes(8), Refusal.BAD_OFFSETS),
        ({"a": {"dtype": "F32", "shape": [-2, -1], "data_offsets": [0, 8]}}, bytes(8), Refusal.BAD_OFFSETS),
        (
            {
                "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
            },
            bytes(12),
            Refusal.BAD_OFFSETS,
        ),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(9), Refusal.BAD_OFFSETS),
        ({"a": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}, bytes(8), Refusal.BAD_HEADER),
        ({"a": {"shape": [2], "data_offsets": [0, 8]}}, bytes(8), Refusal.BAD_HEADER),
        ({"a": 3}, b"", Refusal.BAD_HEADER),
        ([], b"", Refusal.BAD_HEADER),
        ({}, b"", Refusal.NO_FILES),
    ],
    ids=[
        "past the end", "a gap", "before the start", "not its shape", "negative", "overlap", "left over", "kind",
        "no kind", "no tensor", "a list", "empty",
    ],
)  # fmt: skip
def test_offsets_and_headers_that_make_no_sense_are_refused(
    tmp_path: Path, header: object, data: bytes, reason: Refusal
) -> None:
    (tmp_path / "model.safetensors").write_bytes(raw(header, data))
    assert refused(tmp_path).reason is reason


def test_a_header_that_would_not_fit_into_memory_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 62) + b"{}")
    assert refused(tmp_path).reason is Refusal.BAD_HEADER


def lose_shard(folder: Path) -> None:
    (folder / "model-00002-of-00003.safetensors").unlink()


def swap_shards(folder: Path) -> None:
    shutil.copy(folder / "model-00001-of-00003.safetensors", folder / "model-00002-of-00003.safetensors")


def name_outside(folder: Path) -> None:
    index = {"weight_map": {"embed": "../model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def break_index(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"embed"')


def lose_all(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()
    (folder / "READY").touch()


def remove(folder: Path) -> None:
    folder.rename(folder.with_name("step_12_old"))


@pytest.mark.parametrize(
    ("harm", "reason", "file"),
    [
        (lose_shard, Refusal.MISSING_FILE, "step_12/model-00002-of-00003.safetensors"),
        (swap_shards, Refusal.MISSING_TENSOR, "step_12/model-00002-of-00003.safetensors"),
        (name_outside, Refusal.BAD_HEADER, "step_12/model.safetensors.index.json"),
        (break_index, Refusal.BAD_HEADER, "step_12/model.safetensors.index.json"),
        (lose_all, Refusal.NO_FILES, "step_12"),
        (remove, Refusal.MISSING_FILE, "step_12"),
    ],
)
def test_a_folder_that_is_not_whole_is_refused(
    tmp_path: Path, harm: Callable[[Path], None], reason: Refusal, file: str
) -> None:
    folder = sharded(tmp_path / "step_12")
    harm(folder)
    found = refused(folder)
    assert (found.reason, found.file) == (reason, str(tmp_path / file))
    assert str(tmp_path / file) in str(found)


def test_a_second_file_that_a_server_would_load_as_well_is_refused(tmp_path: Path) -> None:
    folder = one_file(tmp_path / "step_1")
    (folder / "ema.safetensors").write_bytes(safetensors())
    assert refused(folder).file == str(folder / "ema.safetensors")


@pytest.mark.parametrize(
    ("shapes", "dtype", "reason", "tensor"),
    [
        ({name: shape for name, shape in TENSORS.items() if name != "norm"}, "F32", Refusal.MISSING_TENSOR, "norm"),
        ({**TENSORS, "value_head": (8,)}, "F32", Refusal.EXTRA_TENSOR, "value_head"),
        ({**TENSORS, "embed": (8, 4)}, "F32", Refusal.OTHER_SHAPE, "embed"),
        (TENSORS, "F16", Refusal.OTHER_DTYPE, "embed"),
    ],
)
def test_another_model_is_refused_by_its_tensor(
    tmp_path: Path, shapes: dict[str, tuple[int, ...]], dtype: str, reason: Refusal, tensor: str
) -> None:
    served = read_checkpoint(one_file(tmp_path / "step_1"))
    new = read_checkpoint(one_file(tmp_path / "step_2", shapes=shapes, dtype=dtype))
    with pytest.raises(CheckpointRefused) as caught:
        check_same_tensors(new, served)
    assert (caught.value.reason, caught.value.tensor) == (reason, tensor)
    assert tensor in str(caught.value)
    assert str(tmp_path / "step_2") in str(caught.value)


def test_versions_only_rise() -> None:
    check_version(13, 12)
    for version in (12, 11):
        with pytest.raises(CheckpointRefused, match=f"version {version} is not above 12"):
            check_version(version, 12)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.safetensors")
    found = refused(tmp_path)
    assert (found.reason, found.file) == (Refusal.UNREADABLE, str(tmp_path / "model.safetensors"))


@pytest.mark.parametrize("what", ["step_7", "step_7/model.safetensors", "step_7/model.safetensors.index.json"])
def test_what_may_not_be_read_is_refused(what: str) -> None:
    with open_folder() as root:
        folder = one_file(root / "step_7")
        if what.endswith("json"):
            sharded(folder)
        (root / what).chmod(0)
        with powerless():
            found = refused(folder)
    assert (found.reason, found.file) == (Refusal.UNREADABLE, str(root / what))
    assert "Permission denied" in str(found)
