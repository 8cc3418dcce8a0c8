import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from deskroll.errors import FailureClass, InputError, MissingDependency, StoreError
from deskroll.store import AttemptReader, AttemptWriter, Run, RunStore, Storage, config_digest, find_run, join
from deskroll.store.info import RunInfo, encode
from deskroll.store.journal import DesktopChanged, Sealed
from deskroll.types import Completion, Failure, StopReason
from tests.store.records import episode, info, key


def make_run(folder: Path, created_at: float = 1.0) -> str:
    folder.mkdir(parents=True)
    (folder / "run.json").write_bytes(encode(RunInfo(run_id=folder.name, created_at=created_at)))
    return str(folder)


def test_a_run_is_found_by_its_folder_its_run_json_or_the_folder_above(tmp_path: Path) -> None:
    run = make_run(tmp_path / "out" / "one")
    for named in (run, run + "/", run + "/run.json", tmp_path / "out"):
        assert find_run(named) == run


def test_of_several_runs_the_candidates_are_listed_newest_first(tmp_path: Path) -> None:
    old, new = make_run(tmp_path / "b", 1.0), make_run(tmp_path / "a", 2.0)
    (tmp_path / "notes").mkdir()
    with pytest.raises(InputError, match=rf"holds 2 runs: name one of them .*\n  {new}\n  {old}"):
        find_run(tmp_path)
    assert find_run(tmp_path, newest=True) == new


@pytest.mark.parametrize("name", ["", "missing"])
def test_where_there_is_no_run_the_error_says_what_to_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"is not a run and holds none: .* Name the folder of a run"):
        find_run(tmp_path / name)
    with pytest.raises(StoreError, match=r"is not a run: it has no run.json"):
        Run.open(tmp_path / name)


def test_a_damaged_run_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(StoreError, match=r"run.json cannot be read"):
        Run.open(tmp_path)


def test_a_run_without_a_journal_yet_is_empty(tmp_path: Path) -> None:
    run = Run.open(make_run(tmp_path / "run"))
    assert (run.outcomes(), run.unfinished(), run.index.epoch) == ([], [], 0)


async def test_desktops_and_attempts_are_read(tmp_path: Path) -> None:
    changes = [DesktopChanged(desktop="d1", state=state, at=2.0, seconds=0.5) for state in ("booting", "ready")]
    async with RunStore.create(tmp_path, info()) as store:
        store.write(changes[0], Sealed(episode=episode(key()), epoch=1), changes[1])
    run = Run.open(tmp_path)
    assert run.desktop_changes() == changes
    assert run.verify() == [f"{tmp_path}/episodes/eval/0/task/0/1/episode.json: missing; the attempt was not sealed"]
    with pytest.raises(StoreError, match="not a path below"):
        run.attempt(key(), 1).image("../../../../../../run.json")
    with pytest.raises(StoreError, match="there is no such file"):
        run.attempt(key(), 1).image("screens/0.png")


async def test_no_manifest_is_missed_of_an_attempt_whose_worker_was_lost(tmp_path: Path) -> None:
    failure = Failure(failure_class=FailureClass.WORKER, kind="WorkerLost", message="killed by SIGSEGV")
    async with RunStore.create(tmp_path, info()) as store:
        store.write(Sealed(episode=episode(key(), value=None, stop=StopReason.FAILURE, failure=failure), epoch=1))
        assert len(await store.outcomes()) == 1
    assert Run.open(tmp_path).verify() == []


def test_a_digest_of_settings_knows_no_order() -> None:
    assert config_digest({"a": 1, "b": {"c": 2, "d": 3}}) == config_digest({"b": {"d": 3, "c": 2}, "a": 1})
    assert config_digest({"a": 1}) != config_digest({"a": 2})


def test_local_storage_replaces_files_whole(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path / "new")
    assert storage.local
    assert storage.list() == []
    assert not storage.exists("a/b.txt")
    storage.write_atomic("a/b.txt", b"one")
    storage.write_atomic("a/b.txt", b"three")
    assert (storage.read("a/b.txt"), storage.read("a/b.txt", 2), storage.size("a/b.txt")) == (b"three", b"ree", 5)
    assert storage.write_new("a/c", b"1")
    assert not storage.write_new("a/c", b"2")
    assert storage.read_many(["a/c", "a/b.txt"]) == [b"1", b"three"]
    assert (storage.list(), storage.list("a")) == (["a/"], ["b.txt", "c"])
    source = tmp_path / "source"
    source.write_bytes(b"copy")
    storage.upload({str(source): "a/d"})
    assert storage.read("a/d") == b"copy"
    assert Storage.at(f"file://{tmp_path}/new").read("a/d") == b"copy"
    with pytest.raises(StoreError, match="not a path below"):
        storage.read("../source")


def test_a_file_is_written_by_several_threads_at_once(tmp_path: Path) -> None:
    storage, data, begin = Storage.at(tmp_path), bytes(10_000), threading.Barrier(4)

    def write() -> None:
        begin.wait(30)
        for _ in range(50):
            storage.write_atomic("a/b", data)

    with ThreadPoolExecutor(4) as threads:
        for written in [threads.submit(write) for _ in range(4)]:
            written.result()
    assert (storage.read("a/b"), storage.list("a")) == (data, ["b"])


def test_an_address_of_an_unknown_kind_is_an_error_with_advice() -> None:
    with pytest.raises((StoreError, MissingDependency), match="nosuch://"):
        Storage.at("nosuch://bucket/x")
    with pytest.raises(MissingDependency, match=r"pip install fsspec, and the package that it wants for gs://"):
        Storage.at("gs://bucket/x")


def test_a_missing_extra_is_one_sentence() -> None:
    code = """
import sys
sys.modules["s3fs"] = None  # as if it were not installed
from deskroll.store import Storage
Storage.at("s3://bucket/x")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "MissingDependency: s3://bucket/x cannot be reached" in done.stderr
    assert "pip install 'deskroll[s3]'" in done.stderr


def test_joining_keeps_what_an_address_is() -> None:
    assert join("s3://bucket/out/", "run") == "s3://bucket/out/run"
    assert join("out", "run") == "out/run"


def test_run_json_is_readable_json(tmp_path: Path) -> None:
    made = info()
    assert msgspec.json.decode(encode(made), type=RunInfo) == made
    assert encode(made).count(b"\n") > 5


async def test_steps_that_older_versions_stored_are_read_as_they_are(tmp_path: Path) -> None:
    storage = Storage.at(tmp_path)
    async with AttemptWriter(storage, key(), 1) as writer:
        await writer.seal(episode(key()))
    old = b'{"index":0,"completion":{"text":"a","model":"m","version":"vllm-0.9-abc","seed":3}}\n'
    (tmp_path / writer.name / "steps.jsonl").write_bytes(old)
    (step,) = AttemptReader(storage, writer.name).steps()
    assert step.completion == Completion(text="a", model="m", version="vllm-0.9-abc", seed=3)
    assert (step.completion.fingerprint, step.completion.sampling) == ("", None)
