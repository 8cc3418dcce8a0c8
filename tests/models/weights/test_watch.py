"""Watching a source: only what is whole, checked and newer is handed out; what is refused is told once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deskroll.errors import InputError
from deskroll.models.weights.checkpoint import Checkpoint, read_checkpoint
from deskroll.models.weights.refusal import CheckpointRefused, Refusal
from deskroll.models.weights.source import FolderSource, open_source
from deskroll.models.weights.watch import WeightsWatch
from tests.models.weights.files import one_file, safetensors, sharded

fsspec = pytest.importorskip("fsspec")


class Watched:
    """A watch over `tmp_path/source`, and all that it refused."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "source"
        self.refused: list[CheckpointRefused] = []
        one_file(self.root / "step_10")
        served = read_checkpoint(self.root / "step_10")
        self.watch = WeightsWatch(FolderSource(self.root), served, self.refused.append)

    async def look(self) -> int | None:
        found = await self.watch.look()
        return None if found is None else found.version


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


async def test_without_markers_sizes_must_rest_for_two_looks(watched: Watched) -> None:
    one_file(watched.root / "step_9")
    folder = sharded(watched.root / "step_11", leave_out="model-00003-of-00003.safetensors")
    assert [await watched.look() for _ in range(3)] == [None, None, None]
    last = folder / "model-00003-of-00003.safetensors"
    whole = safetensors({"norm": (8,)})
    last.write_bytes(whole[:-9])
    assert await watched.look() is None
    last.write_bytes(whole)
    assert [await watched.look() for _ in range(2)] == [None, 11]
    assert watched.refused == []


async def test_a_marker_is_enough_and_from_then_on_required(watched: Watched) -> None:
    one_file(watched.root / "checkpoint-11", marker="STABLE")
    assert await watched.look() == 11
    watched.watch.serve(read_checkpoint(watched.root / "checkpoint-11"))
    folder = one_file(watched.root / "checkpoint-12")
    assert [await watched.look() for _ in range(3)] == [None, None, None]
    (folder / "READY").touch()
    assert await watched.look() == 12
    assert watched.refused == []


async def test_the_newest_is_taken_and_what_it_skips_is_not_refused(watched: Watched) -> None:
    for version in (11, 12, 13):
        one_file(watched.root / f"step_{version}", marker="READY")
    assert await watched.look() == 13
    watched.watch.serve(read_checkpoint(watched.root / "step_13"))
    assert [await watched.look() for _ in range(2)] == [None, None]
    assert watched.refused == []


async def test_a_version_that_goes_back_is_told_once(watched: Watched) -> None:
    assert await watched.look() is None
    one_file(watched.root / "step_3", marker="READY")
    assert [await watched.look() for _ in range(3)] == [None, None, None]
    assert [each.reason for each in watched.refused] == [Refusal.WENT_BACK]
    assert "version 3 is not above 10" in str(watched.refused[0])


def truncate(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-5])


def drop_files(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def drop_tensor(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(safetensors({"embed": (4, 8)}))


def rename(folder: Path) -> None:
    folder.rename(folder.with_name("step_11_backup"))


def double(folder: Path) -> None:
    one_file(folder.with_name("checkpoint-11"), marker="READY")


@pytest.mark.parametrize(
    ("harm", "reason", "times"),
    [
        (truncate, Refusal.TRUNCATED, 1),
        (drop_files, Refusal.NO_FILES, 1),
        (drop_tensor, Refusal.MISSING_TENSOR, 1),
        (rename, Refusal.NO_VERSION, 1),
        (double, Refusal.NO_VERSION, 2),
    ],
)
async def test_what_is_wrong_is_told_once_and_stops_nothing(
    watched: Watched, harm: Callable[[Path], None], reason: Refusal, times: int
) -> None:
    folder = one_file(watched.root / "step_11", marker="READY")
    harm(folder)
    assert [await watched.look() for _ in range(3)] == [None, None, None]
    assert [each.reason for each in watched.refused] == [reason] * times
    assert "11" in str(watched.refused[0])
    one_file(watched.root / "step_12", marker="READY")
    assert await watched.look() == 12


async def test_what_was_refused_is_looked_at_again_once_it_is_mended(watched: Watched) -> None:
    folder = one_file(watched.root / "step_11", marker="READY")
    truncate(folder)
    assert await watched.look() is None
    one_file(folder)
    assert await watched.look() == 11
    assert len(watched.refused) == 1


async def test_an_older_version_is_taken_where_the_newest_is_refused(watched: Watched) -> None:
    one_file(watched.root / "step_11", marker="READY")
    truncate(one_file(watched.root / "step_12", marker="READY"))
    assert await watched.look() == 11
    assert [each.reason for each in watched.refused] == [Refusal.TRUNCATED]


async def test_a_link_that_leads_nowhere_hides_nothing(watched: Watched) -> None:
    folder = one_file(watched.root / "step_11", marker="READY")
    (folder / "A").symlink_to("nowhere")
    assert await watched.look() == 11


async def test_what_is_written_under_another_name_is_not_told_of(watched: Watched) -> None:
    part = watched.root / "step_11.part"
    for size in (100, 200):
        part.mkdir(exist_ok=True)
        (part / "model.safetensors").write_bytes(safetensors()[:size])
        assert await watched.look() is None
    one_file(part).rename(watched.root / "step_11")
    assert [await watched.look() for _ in range(2)] == [None, 11]
    assert watched.refused == []


@pytest.mark.parametrize("name", [".step_11", "tmp-checkpoint-11"])
async def test_temporary_folders_and_those_without_weights_are_nobodys_business(watched: Watched, name: str) -> None:
    one_file(watched.root / name, marker="READY")
    (watched.root / "logs").mkdir()
    (watched.root / "logs" / "READY").touch()
    (watched.root / "note.txt").touch()
    assert [await watched.look() for _ in range(3)] == [None, None, None]
    assert watched.refused == []


async def test_after_going_back_only_what_is_written_anew_is_taken(watched: Watched) -> None:
    for version in (11, 12):
        one_file(watched.root / f"step_{version}", marker="READY")
    assert await watched.look() == 12
    watched.watch.serve(read_checkpoint(watched.root / "step_12"))
    watched.watch.serve(read_checkpoint(watched.root / "step_10"))
    assert [await watched.look() for _ in range(2)] == [None, None]
    one_file(watched.root / "step_11", fill=0.75)
    assert await watched.look() == 11
    assert watched.refused == []


async def test_old_versions_that_are_removed_bit_by_bit_are_not_told_of(watched: Watched) -> None:
    assert await watched.look() is None
    one_file(watched.root / "step_11", marker="READY")
    assert await watched.look() == 11
    watched.watch.serve(read_checkpoint(watched.root / "step_11"))
    for name in ("step_10/model.safetensors", "step_10/config.json"):
        (watched.root / name).unlink()
        assert await watched.look() is None
    assert watched.refused == []


async def test_waiting_ends_when_weights_appear(watched: Watched) -> None:
    waiting = asyncio.create_task(watched.watch.wait(0.01))
    one_file(watched.root / ".part")
    (watched.root / ".part" / "READY").touch()
    (watched.root / ".part").rename(watched.root / "step_20")
    assert (await waiting).version == 20


async def test_a_source_that_is_gone_is_an_error(tmp_path: Path) -> None:
    served = read_checkpoint(one_file(tmp_path / "step_1"))
    watch = WeightsWatch(FolderSource(tmp_path / "none"), served, [].append)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        await watch.look()


class TestObjectStore:
    """The same from a URL: copied to a cache first, as a whole."""

    def put(self, fs: object, folder: Path, url: str) -> None:
        for file in folder.iterdir():
            fs.pipe_file(f"{url}/{folder.name}/{file.name}", file.read_bytes())  # type: ignore[attr-defined]

    async def test_versions_are_copied_checked_and_dropped(self, tmp_path: Path) -> None:
        fs, url, cache = fsspec.filesystem("memory"), f"memory://weights-{tmp_path.name}", tmp_path / "cache"
        served = read_checkpoint(one_file(tmp_path / "start", fill=0.1), 0)
        refused: list[CheckpointRefused] = []
        watch = WeightsWatch(open_source(url, cache), served, refused.append)
        assert await watch.look() is None
        seen: list[Checkpoint] = []
        for version in (1, 2, 3):
            made = one_file(tmp_path / "made" / f"step_{version}", fill=version, marker="READY")
            (made / "optimizer.pt").write_bytes(b"larger than the weights")
            self.put(fs, made, url)
            found = await watch.look()
            assert found is not None
            assert {file.name for file in found.path.iterdir()} == {"READY", "config.json", "model.safetensors"}
            assert found.path.is_relative_to(cache)
            watch.serve(found)
            seen.append(found)
        assert [each.version for each in seen] == [1, 2, 3]
        assert [each.path.is_dir() for each in seen] == [False, True, True], "the one before stays, for a restart"
        broken = sharded(tmp_path / "made" / "step_4", leave_out="model-00002-of-00003.safetensors")
        (broken / "READY").touch()
        self.put(fs, broken, url)
        assert await watch.look() is None
        assert [each.reason for each in refused] == [Refusal.MISSING_FILE]

    async def test_an_index_names_what_is_waited_for(self, tmp_path: Path) -> None:
        fs, url = fsspec.filesystem("memory"), f"memory://index-{tmp_path.name}"
        served = read_checkpoint(one_file(tmp_path / "start"), 0)
        watch = WeightsWatch(open_source(url, tmp_path / "cache"), served, [].append)
        made = sharded(tmp_path / "step_1", leave_out="model-00002-of-00003.safetensors")
        self.put(fs, made, url)
        assert [await watch.look() for _ in range(3)] == [None, None, None]
        index = json.loads((made / "model.safetensors.index.json").read_text())["weight_map"]
        self.put(fs, sharded(tmp_path / "step_1"), url)
        assert await watch.look() is None
        found = await watch.look()
        assert found is not None
        assert found.tensors.keys() == index.keys()
