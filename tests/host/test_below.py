"""Names that somebody else wrote lead to nothing outside of their folder."""

import os
from pathlib import Path

import pytest

from deskroll.envs import EnvContext
from deskroll.envs.rag.env import RagEnv
from deskroll.envs.rag.settings import RagSettings
from deskroll.envs.web import WebEnv, WebSettings
from deskroll.errors import InputError, StoreError
from deskroll.host.below import LeadsOut, open_linked_below, read_below, resolve_below
from deskroll.store import AttemptWriter, Run, RunStore
from deskroll.store.journal import Sealed, Started
from deskroll.types import Task
from tests.store.records import PNG, episode, info, key, step


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").write_bytes(b"inside")
    (tmp_path / "secret").write_bytes(b"SECRET")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "file").write_bytes(b"SECRET")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to("..")
    (folder / "a" / "outer").symlink_to(tmp_path / "secrets")
    (folder / "a" / "inner").symlink_to("b")
    (folder / "a" / "also").symlink_to(folder / "a" / "b" / "file")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    return folder


OUTSIDE = ["out", "up/secret", "a/outer/file", "../secret", "a/../../secret", "/etc/passwd", "a//b/file", "a/b\0", ""]


@pytest.mark.parametrize("path", [*OUTSIDE, "a/inner/file", "a/also", "loop", "pipe", "a", "nothing", "a/b/file/x"])
def test_no_link_is_followed_where_none_is_expected(root: Path, path: str) -> None:
    with pytest.raises(OSError):
        read_below(root, path)


@pytest.mark.parametrize("path", [*(each for each in OUTSIDE if "//" not in each), "loop", "pipe"])
def test_a_link_that_leads_out_is_not_followed(root: Path, path: str) -> None:
    with pytest.raises(OSError):
        os.close(open_linked_below(root, path))


def test_what_lies_below_is_read(root: Path, tmp_path: Path) -> None:
    assert read_below(root, "a/b/file") == b"inside"
    assert read_below(root, "a/b/file", 2, 3) == b"sid"
    for path in ("a/inner/file", "a/also", "a/b/../b/file"):
        with os.fdopen(open_linked_below(root, path), "rb") as file:
            assert file.read() == b"inside"
    linked = tmp_path / "linked"
    linked.symlink_to(root)
    assert read_below(linked, "a/b/file") == b"inside", "the folder itself may be a link"
    assert resolve_below(linked, "a/inner") == root.resolve() / "a" / "b"
    assert resolve_below(root, "not/yet") == root.resolve() / "not" / "yet"
    with pytest.raises(LeadsOut):
        resolve_below(root, "up")


def test_a_folder_that_is_swapped_for_a_link_is_not_gone_through(root: Path, tmp_path: Path) -> None:
    place = resolve_below(root, "a/b/file").relative_to(root.resolve())
    (root / "a" / "b").rename(tmp_path / "moved")
    (root / "a" / "b").symlink_to(tmp_path / "secrets")
    with pytest.raises(LeadsOut):
        read_below(root, str(place))


def test_open_files_are_closed_again(root: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for path in [*OUTSIDE, "a/b/file", "pipe", "a"]:
        try:
            read_below(root, path)
        except OSError:
            continue
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("name", ["mirror", "corpus"])
async def test_a_tasks_own_folder_that_is_a_link_out_is_refused(name: str, tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "tasks", tmp_path / "elsewhere"
    (elsewhere / "a.example").mkdir(parents=True)
    (elsewhere / "a.example" / "page.txt").write_text("SECRET")
    folder.mkdir()
    (folder / "linked").symlink_to(elsewhere)
    (folder / "within").symlink_to("real")
    (folder / "real" / "a.example").mkdir(parents=True)
    (folder / "real" / "a.example" / "page.txt").write_text("rivers")
    kind, settings = (WebEnv, WebSettings()) if name == "mirror" else (RagEnv, RagSettings(cache=tmp_path / "cache"))

    def task(path: str) -> Task:
        return Task(id="t", instruction="q", metadata={"env_config": {name: path}})

    for path in ("linked", "linked/a.example"):
        with pytest.raises(InputError, match=rf"task 't': env_config.{name} leads out of the tasks' folder"):
            kind.prepare([task(path)], settings, folder)
    assert kind.prepare([task("within")], settings, folder), "a link that stays inside is as good as what it leads to"
    env = kind(task("linked"), settings, EnvContext(folder=folder))  # type: ignore[arg-type]
    with pytest.raises(InputError):
        await (env._opened() if isinstance(env, WebEnv) else env.reset())


async def make_run(root: Path) -> None:
    async with RunStore.create(root, info()) as store:
        store.write(Started(key=key(), attempt=1, epoch=1))
        async with AttemptWriter(store.storage, key(), 1) as writer:
            writer.step(step(0))
            writer.screen(PNG)
            await writer.seal(episode(key()))
        store.write(Sealed(episode=episode(key()), epoch=1))


async def test_links_and_pipes_in_a_hostile_run_are_not_read(tmp_path: Path) -> None:
    run, secret = tmp_path / "run", tmp_path / "secret"
    await make_run(run)
    secret.write_bytes(b"SECRET")
    attempt = run / "episodes/eval/0/task/0/1"
    (attempt / "screens" / "0.png").unlink()
    (attempt / "screens" / "0.png").symlink_to(secret)
    (attempt / "steps.jsonl").unlink()
    os.mkfifo(attempt / "steps.jsonl")
    (attempt / "folder").symlink_to(tmp_path)
    reader = Run.open(run).attempt(key(), 1)
    with pytest.raises(StoreError, match=r"0.png: a link is in that path, and links in a run are not followed"):
        reader.image("screens/0.png")
    with pytest.raises(StoreError, match="a link is in that path"):
        reader.read("folder/secret")
    with pytest.raises(StoreError, match="not a regular file"):
        reader.steps()
    assert len(reader.verify()) == 2


@pytest.mark.parametrize("name", ["journal.jsonl", "results.jsonl", ".lock", "run.json"])
async def test_a_resume_writes_through_no_link(name: str, tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    await make_run(run)
    outside.write_bytes((run / name).read_bytes())
    before = outside.read_bytes()
    (run / name).unlink()
    (run / name).symlink_to(outside)
    with pytest.raises(StoreError, match="a link is in that path"):
        async with RunStore.resume(run):
            raise AssertionError("it must not be opened")
    assert outside.read_bytes() == before


async def test_no_attempt_is_written_by_way_of_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    async with RunStore.create(tmp_path / "run", info()) as store:
        (tmp_path / "run" / "episodes").symlink_to(outside)
        with pytest.raises(StoreError, match="a link is in that path"):
            AttemptWriter(store.storage, key(), 1)
        (tmp_path / "run" / "episodes").unlink()
    assert [each for each in outside.rglob("*") if each.is_file()] == []
