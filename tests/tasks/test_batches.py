"""Where batches come from: a folder, a file that changes, an address; each batch once, and what is bad is named."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from deskroll.config import check
from deskroll.errors import ConfigError, InputError
from deskroll.tasks.batches import (
    BadBatch,
    BatchName,
    SourceError,
    SourceSettings,
    TaskBatch,
    TaskLoader,
    open_source,
)
from tests.waiting import eventually


class Known:
    """Remembers batches, as a service does."""

    def __init__(self) -> None:
        self.names: list[tuple[str, str]] = []

    def knows(self, name: BatchName) -> bool:
        return (name.id, name.digest) in self.names

    def take(self, batch: TaskBatch | BadBatch | None) -> TaskBatch | BadBatch | None:
        if isinstance(batch, TaskBatch):
            self.names.append((batch.id, batch.digest))
            self.names += [(each.id, each.digest) for each in batch.passed]
        return batch


@asynccontextmanager
async def opened(
    at: Path | str, known: Known | None = None, after: str = "", **fields: object
) -> AsyncIterator[TaskLoader]:
    """A loader whose files are at rest at once, unless told otherwise."""
    given = SourceSettings.model_validate({"at": str(at), "rest_ms": 0, **fields})
    aside = Path(at).parent / "aside" if isinstance(at, Path) else Path(str(fields.get("root") or "aside"))
    async with TaskLoader(open_source(given, aside, after), (known or Known()).knows) as loader:
        yield loader


def tasks(*names: str) -> str:
    return json.dumps([{"id": name, "question": "6*7?"} for name in names])


def good(batch: TaskBatch | BadBatch | None) -> TaskBatch:
    assert isinstance(batch, TaskBatch), batch
    return batch


def ids(batch: TaskBatch | BadBatch | None) -> list[str]:
    return [task.id for task in good(batch).tasks]


# --- a folder ---


def put(folder: Path, name: str, text: str, at: int = 0) -> Path:
    """A file that was written at that second."""
    path = folder / name
    path.write_text(text)
    os.utime(path, (at, at))
    return path


async def test_files_of_a_folder_come_oldest_first_and_once(tmp_path: Path) -> None:
    put(tmp_path, "new.json", tasks("c"), 3)
    put(tmp_path, "old.jsonl", '{"id": "a", "question": "?"}\n\n{"id": "b", "question": "?"}', 1)
    put(tmp_path, "middle.json", tasks("m"), 2)
    put(tmp_path, ".hidden.json", tasks("h"))
    put(tmp_path, "notes.txt", "no batch")
    (tmp_path / "folder.json").mkdir()
    known = Known()
    async with opened(tmp_path, known) as loader:
        first = good(known.take(await loader.poll_for_tasks()))
        assert (ids(first), first.id, loader.waiting) == (["a", "b"], "old.jsonl", 2)
        assert ids(known.take(await loader.poll_for_tasks())) == ["m"]
    async with opened(tmp_path, known) as loader:  # a restart
        assert ids(known.take(await loader.poll_for_tasks())) == ["c"]
        assert known.take(await loader.poll_for_tasks()) is None
        os.utime(tmp_path / "new.json")
        assert known.take(await loader.poll_for_tasks()) is None, "it says the same as before"
        put(tmp_path, "new.json", tasks("d"), 4)
        assert ids(known.take(await loader.poll_for_tasks())) == ["d"]


async def test_a_file_is_left_until_its_size_rests(tmp_path: Path) -> None:
    path = tmp_path / "slow.jsonl"
    async with opened(tmp_path, rest_ms=300) as loader:
        for number in range(4):
            with path.open("a") as file:
                file.write(json.dumps({"id": f"t{number}", "question": "?"}) + "\n")
            assert await loader.poll_for_tasks() is None

        async def found() -> TaskBatch | BadBatch | None:
            await loader.wait(60.0)  # and no longer than it takes to rest
            return await loader.poll_for_tasks()

        assert ids(await eventually(found, "it rests")) == ["t0", "t1", "t2", "t3"]


async def test_only_the_newest_is_run_and_the_others_are_passed_over_for_good(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        put(tmp_path, f"{number}.json", tasks(f"t{number}"), number)
    put(tmp_path, "0.json", "no batch", 9)
    known = Known()
    async with opened(tmp_path, known, newest_only=True) as loader:
        bad = known.take(await loader.poll_for_tasks())
        assert isinstance(bad, BadBatch)
        await loader.set_aside(bad)
        newest = good(known.take(await loader.poll_for_tasks()))
        assert (ids(newest), [each.id for each in newest.passed]) == (["t3"], ["1.json", "2.json"])
        assert await loader.poll_for_tasks() is None
    async with opened(tmp_path, known, newest_only=True) as loader:
        assert await loader.poll_for_tasks() is None


BAD = {
    "torn.json": ('[{"id": "a", ', "torn.json:1: it is not valid JSON"),
    "number.json": ("7", "it holds a number"),
    "empty.jsonl": ("", "there is no task in it"),
    "double.jsonl": ('{"id": "a", "question": "?"}\n{"id": "a", "question": "?"}\n', "id 'a' is there already"),
    "nameless.json": ('[{"question": "?"}]', "id is missing"),
    "suite.json": ('{"chrome": ["../../etc/passwd"]}', "there is no folder examples beside it"),
    "latin.json": (b'[{"id": "\xe9"}]', "is not UTF-8"),
    "large.json": (tasks("x" * 100) + " " * 200_000, "it is larger than 0.1 MB"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_file_is_named_and_set_aside(tmp_path: Path, name: str) -> None:
    text, says = BAD[name]
    data = text if isinstance(text, bytes) else text.encode()
    (tmp_path / name).write_bytes(data)
    known = Known()
    async with opened(tmp_path, known, max_mb=0.1) as loader:
        bad = known.take(await loader.poll_for_tasks())
        assert isinstance(bad, BadBatch)
        assert says in bad.error
        where = await loader.set_aside(bad)
        assert where == str(tmp_path / "bad" / name)
        assert Path(where).read_bytes() == data
        assert says in Path(f"{where}.error").read_text()
        assert not (tmp_path / name).exists()
        assert await loader.poll_for_tasks() is None
        (tmp_path / name).write_bytes(data)  # put back, and as bad as before
        again = await loader.poll_for_tasks()
        assert isinstance(again, BadBatch)
        assert await loader.set_aside(again) == str(tmp_path / "bad" / f"2-{name}")
        assert Path(where).read_bytes() == data


@pytest.mark.parametrize("newest_only", [False, True])
async def test_a_name_that_is_no_utf8_is_a_batch_like_any(tmp_path: Path, newest_only: bool) -> None:
    odd, known = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff.json")), Known()
    odd.write_text(tasks("a"))
    async with opened(tmp_path, known, newest_only=newest_only) as loader:
        batch = good(known.take(await loader.poll_for_tasks()))
        assert (batch.id.encode(), ids(batch)) == (rb"a\udcff.json", ["a"])
        assert await loader.poll_for_tasks() is None
        odd.write_text("[")
        put(tmp_path, "b.json", tasks("b"))
        found = [known.take(await loader.poll_for_tasks())]
        if not newest_only:
            found = [known.take(await loader.poll_for_tasks()), *found]
        bad = found[0]
        assert isinstance(bad, BadBatch)
        assert rb"a\udcff.json" in bad.error.encode()
        assert (await loader.set_aside(bad)).encode().endswith(rb"/bad/a\udcff.json")
        assert not odd.exists()
        assert ids(found[1] if not newest_only else await loader.poll_for_tasks()) == ["b"]


async def test_a_suite_with_half_of_a_character_is_bad(tmp_path: Path) -> None:
    (tmp_path / "examples" / "x").mkdir(parents=True)
    put(tmp_path, "suite.json", r'{"x": ["\ud83d"]}')
    async with opened(tmp_path) as loader:
        bad = await loader.poll_for_tasks()
        assert isinstance(bad, BadBatch)
        assert bad.error.encode()


@pytest.mark.parametrize("newest_only", [False, True])
async def test_an_error_that_passes_makes_no_batch_bad(tmp_path: Path, newest_only: bool) -> None:
    async with opened(tmp_path, newest_only=newest_only) as loader:
        assert await loader.poll_for_tasks() is None
        put(tmp_path, "a.json", tasks("a"))
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.open(tmp_path, os.O_RDONLY)
        os.close(free)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, limits[1]))  # the folder can be listed, no file read
            with pytest.raises(SourceError, match=r"a\.json: it cannot be read: Too many open files"):
                await loader.poll_for_tasks()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert ids(await loader.poll_for_tasks()) == ["a"]


def test_the_query_of_an_address_is_not_shown() -> None:
    assert SourceSettings(at="http://host/x?sig=SECRET").shown == "http://host/x"
    assert SourceSettings(at="what?/x").shown == "what?/x"


async def test_links_and_pipes_are_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.json"
    secret.write_text(tasks("secret"))
    folder = tmp_path / "inbox"
    folder.mkdir()
    (folder / "link.json").symlink_to(secret)
    os.mkfifo(folder / "pipe.json")
    known = Known()
    async with opened(folder, known) as loader:
        for _ in range(2):
            bad = known.take(await loader.poll_for_tasks())
            assert isinstance(bad, BadBatch)
            assert "it cannot be read" in bad.error
            await loader.set_aside(bad)
        assert await loader.poll_for_tasks() is None
    assert secret.exists()
    assert {path.name for path in folder.iterdir()} == {"bad"}


async def test_a_file_that_was_replaced_meanwhile_is_not_set_aside(tmp_path: Path) -> None:
    put(tmp_path, "a.json", "7", 1)
    known = Known()
    async with opened(tmp_path, known) as loader:
        bad = known.take(await loader.poll_for_tasks())
        assert isinstance(bad, BadBatch)
        put(tmp_path, "a.json", tasks("good"), 2)
        assert await loader.set_aside(bad) == ""
        assert ids(await loader.poll_for_tasks()) == ["good"]


async def test_a_wait_ends_when_a_file_appears(tmp_path: Path) -> None:
    async with opened(tmp_path) as loader:
        assert await loader.wait(0.01) is False
        waiting = asyncio.ensure_future(loader.wait(600))
        await asyncio.sleep(0)
        put(tmp_path, "a.json", tasks("a"))
        assert await asyncio.wait_for(waiting, 60) is True
        assert ids(await loader.poll_for_tasks()) == ["a"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"at": ""}, "source is empty"),
        ({"at": "nowhere"}, "there is no folder"),
        ({"at": "nowhere/suite.json"}, "there is no folder"),
        ({"at": "ftp://host/x"}, "an address begins with http"),
        ({"at": "http://user:word@host/x"}, "it holds a name or a password"),
        ({"at": "http:///x"}, "it names no host"),
        ({"at": "http://host/x", "token_env": "NO_SUCH_TOKEN"}, "that environment variable is not set"),
        ({"at": ".", "token_env": "HOME"}, "token_env is for an address"),
    ],
)
def test_what_is_wrong_with_a_source_is_said(tmp_path: Path, fields: dict[str, str], says: str) -> None:
    with pytest.raises((InputError, ConfigError), match=says):
        open_source(check(SourceSettings, fields, "source"), tmp_path)


async def test_a_folder_that_vanishes_is_trouble_and_no_end(tmp_path: Path) -> None:
    folder = tmp_path / "inbox"
    folder.mkdir()
    async with opened(folder) as loader:
        folder.rmdir()
        with pytest.raises(SourceError, match="cannot be read"):
            await loader.poll_for_tasks()
        folder.mkdir()
        put(folder, "a.json", tasks("a"))
        assert ids(await loader.poll_for_tasks()) == ["a"]


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "remove", "poll", "poll", "restart", "spoil"]),
        st.integers(0, 3),
        st.integers(0, 2),
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(CHANGES, st.booleans())
def test_each_content_of_each_file_comes_once(changes: list[tuple[str, int, int]], newest_only: bool) -> None:
    async def carry_out(folder: Path) -> None:
        known, written, came = Known(), dict[str, tuple[str, int]](), list[tuple[str, str]]()
        clock = 0
        source = open_source(SourceSettings(at=str(folder), rest_ms=0, newest_only=newest_only), folder)
        for what, number, version in [*changes, *[("poll", 0, 0)] * 20]:
            name, clock = f"{number}.json", clock + 1
            if what == "write":
                put(folder, name, tasks(f"t{version}"), clock)
                written[name] = (f"t{version}", clock)
            elif what == "spoil":
                put(folder, name, f"[{version}", clock)
                written[name] = ("", clock)
            elif what == "remove" and name in written:
                (folder / name).unlink()
                del written[name]
            elif what == "restart":
                source = open_source(SourceSettings(at=str(folder), rest_ms=0, newest_only=newest_only), folder)
            elif what == "poll":
                found = known.take(await source.poll(known.knows))
                if isinstance(found, BadBatch):
                    await source.set_aside(found)
                    written.pop(found.id, None)
                elif isinstance(found, TaskBatch):
                    came.append((found.id, found.tasks[0].id))
        assert len(set(came)) == len(came)
        assert await source.poll(known.knows) is None
        if not newest_only:
            assert {(name, text) for name, (text, _) in written.items()} <= set(came)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(carry_out(Path(folder)))


# --- a file ---


async def test_a_file_that_names_tasks_is_a_batch_whenever_it_changes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        path = tmp_path / "root" / "chrome" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"id": name, "instruction": "Do it."}))
    suite, known = tmp_path / "tasks.json", Known()
    async with opened(suite, known, root=str(tmp_path / "root")) as loader:
        assert await loader.poll_for_tasks() is None, "it is not there yet"
        suite.write_text('{"chrome": ["one"]}')
        first = good(known.take(await loader.poll_for_tasks()))
        assert (ids(first), first.tasks[0].domain) == (["one"], "chrome")
        assert await loader.poll_for_tasks() is None
        suite.write_text('{"chrome": ["one", "two"]}')
        assert ids(known.take(await loader.poll_for_tasks())) == ["one", "two"]
        suite.write_text('{"chrome": ["../../x"]}')
        bad = known.take(await loader.poll_for_tasks())
        assert isinstance(bad, BadBatch)
        assert "they have no '/' in them" in bad.error
        where = Path(await loader.set_aside(bad))
        assert (where.parent, where.read_text()) == (tmp_path / "aside", '{"chrome": ["../../x"]}')
        assert suite.exists()
    async with opened(suite, known, root=str(tmp_path / "root")) as loader:
        assert isinstance(await loader.poll_for_tasks(), BadBatch), "what it says is still bad"
        suite.write_text('{"chrome": ["one"]}')
        assert await loader.poll_for_tasks() is None, "a restart repeats nothing"


async def test_a_log_that_grows_beside_a_file_is_nothing_new(tmp_path: Path) -> None:
    async with opened(tmp_path / "tasks.json") as loader:
        (tmp_path / "log.jsonl").write_text("more and more")
        assert await loader.wait(0.05) is False


# --- an address ---


class Answers:
    """A server that says what it is told to."""

    def __init__(self) -> None:
        self.said: list[tuple[int, object]] = []
        self.asked: list[tuple[str, str]] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append((request.query.get("after", ""), request.headers.get("Authorization", "")))
        status, body = self.said.pop(0) if self.said else (204, None)
        if status == 302:
            return web.Response(status=302, headers={"Location": str(body)})
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return web.Response(status=status, body=b"" if status == 204 else data)


@pytest.fixture
async def answers() -> AsyncIterator[Answers]:
    made = Answers()
    app = web.Application()
    app.router.add_get("/tasks", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/tasks"
    yield made
    await runner.cleanup()


def said(name: object, *names: str) -> dict[str, object]:
    return {"id": name, "tasks": [{"id": each, "question": "?"} for each in names]}


async def test_an_address_is_asked_for_what_follows_the_last_batch(
    answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASKS_TOKEN", "secret")
    answers.said = [(200, said("one", "a", "b")), (200, said("one", "a", "b")), (204, None), (200, said(2, "c"))]
    known = Known()
    async with opened(answers.url, known, token_env="TASKS_TOKEN", root=str(tmp_path)) as loader:
        assert ids(known.take(await loader.poll_for_tasks())) == ["a", "b"]
        assert await loader.poll_for_tasks() is None, "it says the same again"
        assert await loader.poll_for_tasks() is None
        second = good(known.take(await loader.poll_for_tasks()))
        assert (second.id, ids(second)) == ("2", ["c"])
    async with opened(answers.url, known, after="2", root=str(tmp_path)) as loader:
        assert await loader.poll_for_tasks() is None
    assert answers.asked == [
        ("", "Bearer secret"), ("one", "Bearer secret"), ("one", "Bearer secret"), ("one", "Bearer secret"), ("2", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"nonsense", "it is not valid JSON"),
        ([1], "it answers a list"),
        ({"tasks": []}, "the id of the batch is missing"),
        ({"id": "x" * 201, "tasks": []}, "over 200 characters"),
        ({"id": "a\n", "tasks": []}, "some that do not show"),
        ({"id": "../../x", "tasks": {}}, "tasks is a object; it must be a list"),
        ({"id": "x", "tasks": []}, "/tasks: batch 'x': tasks: there is no task in it"),
        (b'{"id": "x", "note": "\\ud83d", "tasks": []}', "it holds half of a character"),
        (b'{"id": "\\ud83d", "tasks": []}', "some that do not show"),
        ({"id": "x", "tasks": [{"id": "a"}]}, "question is missing"),
        ({"id": "x", "tasks": [{"id": "a", "question": "?" * 200_000}]}, "it is larger than 0.1 MB"),
    ],
)
async def test_a_bad_answer_is_kept_aside(answers: Answers, tmp_path: Path, body: object, says: str) -> None:
    answers.said = [(200, body), (200, body), (200, said("good", "a"))]
    known = Known()
    async with opened(answers.url, known, root=str(tmp_path / "aside"), max_mb=0.1) as loader:
        bad = known.take(await loader.poll_for_tasks())
        assert isinstance(bad, BadBatch)
        assert says in bad.error
        assert "http:/1" not in bad.error
        where = Path(await loader.set_aside(bad))
        assert where.parent == tmp_path / "aside"
        assert says in Path(f"{where}.error").read_text()
        assert await loader.poll_for_tasks() is None, "the same again is nothing new"
        assert ids(await loader.poll_for_tasks()) == ["a"]


@pytest.mark.parametrize(
    ("status", "says"), [(500, "answered 500"), (401, "is the token right"), (302, "a redirect, which is not followed")]
)
async def test_an_address_that_refuses_is_trouble_and_no_batch(answers: Answers, status: int, says: str) -> None:
    answers.said = [(status, "http://127.0.0.1:9/elsewhere"), (200, said("good", "a"))]
    async with opened(answers.url, root="aside") as loader:
        with pytest.raises(SourceError, match=says):
            await loader.poll_for_tasks()
        assert ids(await loader.poll_for_tasks()) == ["a"]


async def test_an_address_that_is_silent_is_not_waited_for_long(tmp_path: Path) -> None:
    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(never, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, opened(f"http://127.0.0.1:{port}/tasks", timeout=0.2, root=str(tmp_path)) as loader:
        with pytest.raises(SourceError, match="no answer within"):
            await loader.poll_for_tasks()
    async with opened(f"http://127.0.0.1:{port}/tasks", root=str(tmp_path)) as loader:
        with pytest.raises(SourceError, match="cannot be asked"):
            await loader.poll_for_tasks()
