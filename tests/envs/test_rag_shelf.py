"""The shelf: which documents an index holds, how many are open, and who waits for whom."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deskroll.envs.rag import RagEnv
from deskroll.envs.rag.building import index_name
from deskroll.envs.rag.corpus import Corpus
from deskroll.envs.rag.index import opened
from deskroll.envs.rag.settings import RagSettings
from deskroll.envs.rag.shelf import Shelf
from deskroll.errors import InputError
from deskroll.types import Task
from tests.waiting import eventually, wait_until

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def settings(tmp_path: Path) -> RagSettings:
    return RagSettings(cache=tmp_path / "cache")


def corpus(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "a.txt").write_text(text)
    return folder


@contextmanager
def held(path: Path, settings: RagSettings) -> Iterator[Path]:
    """As if another process was building the index of this corpus."""
    assert settings.cache is not None
    settings.cache.mkdir(exist_ok=True)
    file = settings.cache / f"{index_name(Corpus(path).digest(), settings)}.lock"
    with file.open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield file


def is_waited_for(lock: Path) -> bool:
    inode = f":{lock.stat().st_ino} "
    return any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


def files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def found(shelf: Shelf, path: Path, settings: RagSettings, query: str = "capital") -> str:
    (hit,) = await shelf.search(path, settings, query, 1)
    return hit.passage.text


def test_an_index_holds_what_its_name_says(tmp_path: Path, settings: RagSettings) -> None:
    """The documents change while their index is waited for; its name is then that of what they were."""
    path = corpus(tmp_path / "c", "the capital is Oldtown")
    indexes = []
    with held(path, settings) as lock:
        thread = threading.Thread(target=lambda: indexes.append(opened(path, settings)))
        thread.start()
        wait_until(lambda: is_waited_for(lock), "the lock is waited for")
        corpus(path, "the capital is Newtown")
    thread.join()
    assert indexes[0].search("capital", 1)[0].passage.text == "the capital is Newtown"
    corpus(path, "the capital is Oldtown")
    index = opened(path, settings)
    assert index.search("capital", 1)[0].passage.text == "the capital is Oldtown"
    assert index.name != indexes[0].name


async def test_few_indexes_are_open_at_once(tmp_path: Path, settings: RagSettings) -> None:
    paths = [corpus(tmp_path / f"c{n}", f"the capital is town{n}") for n in range(12)]
    shelf = Shelf(most=2)
    await shelf.index(paths[0], settings)
    before = files()
    for _ in range(2):
        assert [await found(shelf, path, settings) for path in paths] == [f"the capital is town{n}" for n in range(12)]

    async def few() -> bool:
        return files() - before <= 10

    await eventually(few, "those that were put away are closed")


async def test_a_corpus_means_the_same_documents_until_it_is_renewed(tmp_path: Path, settings: RagSettings) -> None:
    path, other = corpus(tmp_path / "c", "the capital is Oldtown"), corpus(tmp_path / "d", "another capital")
    shelf = Shelf(most=1)
    assert await found(shelf, path, settings) == "the capital is Oldtown"
    corpus(path, "the capital is Newtown")
    await shelf.index(other, settings)
    assert await found(shelf, path, settings) == "the capital is Oldtown"
    await shelf.index(other, settings)
    assert settings.cache is not None
    shutil.rmtree(settings.cache)
    with pytest.raises(InputError, match="it has changed, and the index of what it held before is gone; run anew"):
        await shelf.index(path, settings)
    await asyncio.to_thread(shelf.renew, path, settings)
    assert await found(shelf, path, settings) == "the capital is Newtown"


async def test_a_long_opening_keeps_nobody_else_waiting(tmp_path: Path, settings: RagSettings) -> None:
    """More resets than there are threads wait for an index that another process builds."""
    path, other = corpus(tmp_path / "c", "the capital is Oldtown"), corpus(tmp_path / "d", "another capital")
    shelf = Shelf()
    with held(path, settings) as lock:
        waiting = [asyncio.create_task(shelf.index(path, settings)) for _ in range(40)]

        async def is_waited() -> bool:
            return is_waited_for(lock)

        await eventually(is_waited, "the lock is waited for")
        await asyncio.wait_for(asyncio.to_thread(lambda: None), 30)
        assert await asyncio.wait_for(found(shelf, other, settings), 30) == "another capital"
        waiting[0].cancel()
        assert not any(each.done() for each in waiting[1:])
    indexes = await asyncio.wait_for(asyncio.gather(*waiting[1:]), 30)
    assert len(set(map(id, indexes))) == 1
    assert waiting[0].cancelled()


async def test_what_failed_once_is_tried_again(tmp_path: Path, settings: RagSettings) -> None:
    shelf = Shelf()
    with pytest.raises(InputError, match="there is no such file or folder"):
        await shelf.index(tmp_path / "c", settings)
    assert await found(shelf, corpus(tmp_path / "c", "the capital"), settings) == "the capital"


def run(code: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT, timeout=60, stdout=subprocess.PIPE, check=True,
        text=True,
    )  # fmt: skip
    return done.stdout


def test_a_fork_opens_and_searches_by_itself(tmp_path: Path, settings: RagSettings) -> None:
    """Also where a thread of its parent, which it does not have, was about to open the same index."""
    code = """
import asyncio, fcntl, os, sys, threading
from pathlib import Path
from deskroll.envs.rag.settings import RagSettings
from deskroll.envs.rag.shelf import Shelf
from tests.envs.test_rag_shelf import is_waited_for
from tests.waiting import wait_until
one, two, cache, file = map(Path, sys.argv[1:])
shelf, settings = Shelf(), RagSettings(cache=cache)
async def search():
    return [len(await asyncio.wait_for(shelf.search(each, settings, "capital", 1), 30)) for each in (one, two)]
asyncio.run(shelf.index(one, settings))
lock = file.open("ab")
fcntl.flock(lock, fcntl.LOCK_EX)
thread = threading.Thread(target=lambda: asyncio.run(shelf.index(two, settings)))
thread.start()
wait_until(lambda: is_waited_for(file), "the lock is waited for")
pid = os.fork()
if pid == 0:
    fcntl.flock(lock, fcntl.LOCK_UN)
    print(asyncio.run(search()), flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
thread.join()
print(asyncio.run(search()))
"""
    one, two = corpus(tmp_path / "c", "a capital"), corpus(tmp_path / "d", "another capital")
    with held(two, settings) as file:
        pass
    assert run(code, one, two, tmp_path / "cache", file) == "[1, 1]\n[1, 1]\n"


def test_too_many_open_files_are_called_so(tmp_path: Path) -> None:
    code = """
import os, resource, sys
from pathlib import Path
from deskroll.envs.rag.index import opened
from deskroll.envs.rag.settings import RagSettings
from deskroll.errors import InputError
path, cache = map(Path, sys.argv[1:])
opened(path, RagSettings(cache=cache))
used = max(map(int, os.listdir("/proc/self/fd")))
for spare in range(0, 4):
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        opened(path, RagSettings(cache=cache))
    except InputError as error:
        print(error)
"""
    told = run(code, corpus(tmp_path / "c", "a capital"), tmp_path / "cache").splitlines()
    assert told
    assert all(each.endswith("too many files are open already; allow more of them (ulimit -n)") for each in told), told


def test_what_a_run_is_told_changes_with_the_documents_alone(tmp_path: Path, settings: RagSettings) -> None:
    """A resume refuses another digest: documents of two kinds in one run would be compared as one."""
    corpus(tmp_path / "c", "the capital is Oldtown")
    corpus(tmp_path / "d", "another capital")
    tasks = [Task(id=each, instruction="q", metadata={"env_config": {"corpus": each}}) for each in ("c", "d")]
    first = RagEnv.prepare(tasks, settings, tmp_path)
    assert RagEnv.prepare(tasks[::-1] * 2, settings, tmp_path) == first
    assert RagEnv.prepare(tasks[:1], settings, tmp_path) != first
    corpus(tmp_path / "c", "another capital")
    corpus(tmp_path / "d", "the capital is Oldtown")
    swapped = RagEnv.prepare(tasks, settings, tmp_path)
    corpus(tmp_path / "c", "the capital is Newtown")
    assert len({first, swapped, RagEnv.prepare(tasks, settings, tmp_path)}) == 3
    corpus(tmp_path / "c", "the capital is Oldtown")
    corpus(tmp_path / "d", "another capital")
    assert RagEnv.prepare(tasks, settings, tmp_path) == first
    assert RagEnv.prepare([], settings, tmp_path) == ""
