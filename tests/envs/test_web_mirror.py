"""A folder that stands for the web: searched, visited, never left; and the examples that come with one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from deskroll.envs import EnvContext
from deskroll.envs.web import Outside, WebEnv, WebSettings
from deskroll.errors import InputError
from deskroll.tasks import load_tasks
from deskroll.types import Task, ToolRequest
from tests.commands import Commands
from tests.envs.web.site import TASK, Names, Sockets, search, visit, web_env

DATA = Path(__file__).parent.parent.parent / "data"
PAGES = {
    "a.example/index.html": "<title>Home</title><p>Welcome to the rivers</p>",
    "a.example/alder.html": "<title>The Alder</title><p>A river of 283 km, with otters</p>",
    "a.example/sub/index.html": "<p>below</p>",
    "a.example/list?page=2": "<p>the second page of the list</p>",
    "a.example/list?page=3.html": "<p>the third page of the list</p>",
    "a.example/with space.html": "<p>a spacious page</p>",
    "a.example/note.txt": "a plain note <b>",
    "a.example:8080/index.html": "<p>another port</p>",
    "b.example/中文.html": "<meta charset=utf-8><title>河流</title><p>这条河很长</p>",
    "例子.example/index.html": "<p>一个中文网站</p>",
    "b.example/style.css": "rivers { otters: none }",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "tasks" / "pages"
    for name, text in PAGES.items():
        path = made / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "tasks" / "secret.html").write_text("<p>SECRET</p>")
    (tmp_path / "tasks" / "secret").mkdir()
    (tmp_path / "tasks" / "secret" / "index.html").write_text("<p>SECRET rivers</p>")
    (made / "a.example" / "out.html").symlink_to(tmp_path / "tasks" / "secret.html")
    (made / "a.example" / "outer").symlink_to(tmp_path / "tasks" / "secret")
    for name in (".git/config", ".git/index.html", "a.example/.env", "a.example/.hidden.html", "notes.txt"):
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_text("SECRET")
    (made / "a.example" / "inner.html").symlink_to(made / ".git" / "index.html")
    (made / "a.example" / "loop.html").symlink_to("loop.html")
    (made / "a.example" / "also.html").symlink_to("alder.html")
    (made / "a.example" / "binary").write_bytes(bytes(range(256)) * 20)
    os.mkfifo(made / "a.example" / "pipe.html")
    return made


@pytest.mark.parametrize(
    ("url", "expected"),
    [("https://a.example", "Welcome"), ("http://a.example/", "Welcome"), ("https://a.example/index.html", "Welcome"),
     ("https://a.example/alder.html", "283 km"), ("https://a.example/alder", "283 km"),
     ("https://a.example/alder.html#top", "283 km"), ("https://a.example/sub/", "below"),
     ("https://a.example/sub", "below"), ("https://a.example/list?page=2", "second page"),
     ("https://a.example/list?page=3", "third page"), ("https://a.example/with%20space.html", "spacious"),
     ("https://a.example/note.txt", "a plain note <b>"), ("https://a.example:8080/", "another port"),
     ("https://a.example:443/alder.html", "283 km"), ("http://a.example:80/alder.html", "283 km"),
     ("https://a.example./alder.html", "283 km"), ("https://A.Example/alder.html", "283 km"),
     ("https://a.example/also.html", "283 km"),
     ("https://例子.example/", "一个中文网站"), ("https://xn--fsqu00a.example/", "一个中文网站"),
     ("https://b.example/中文.html", "这条河很长"), ("https://b.example/%E4%B8%AD%E6%96%87.html", "这条河很长")],
)  # fmt: skip
async def test_addresses_lead_to_files(root: Path, url: str, expected: str) -> None:
    async with web_env(mirror=str(root)) as env:
        assert expected in await visit(env, url)


async def test_a_query_that_is_none_costs_no_other(root: Path) -> None:
    async with web_env(mirror=str(root)) as env:
        result = await search(env, "", "otters", "x" * 501)
    assert "a query has 1 to 500 characters; this one has 0" in result
    assert "The Alder" in result
    assert "this one has 501" in result


@pytest.mark.parametrize(
    "url",
    ["https://a.example/../../secret.html", "https://a.example/%2e%2e/%2e%2e/secret.html", "https://../secret.html",
     "https://a.example/..%2f..%2fsecret.html", "https://a.example/%2e%2e%2f%2e%2e%2fsecret.html", "https://../secret/",
     "https://a.example/..%5c..%5csecret.html", "https://a.example//etc/passwd", "https://a.example/%2fetc%2fpasswd",
     "https://a.example/out.html", "https://a.example/outer/", "https://a.example/outer/index.html",
     "https://a.example/%00", "https://a.example/x%00.html", "https://a.example/" + "x" * 1500, "https://%2e%2e/secret",
     "https://a.example/list?../../../secret.html", "https://a.example/x?/../../../../secret", "file:///etc/passwd",
     "https://a.example/pipe.html", "https://c.example/", "http://127.0.0.1/", "https://u:p@a.example/",
     "http://.git/config", "http://.git/", "https://a.example/.env", "https://a.example/%2eenv", "http://./notes.txt",
     "https://a.example/.hidden", "https://a.example/.hidden.html", "https://a.example/inner.html",
     "https://a.example/loop.html", "https://a.example/loop", "https://a.example/sub/..%2f.env", "http://notes.txt/",
     "https://b.example/style.css", "https://a.example:8443/", "http://a.example:443/",
     "https://a.example/binary", "https://a.example/none", "https://pages/"],
)  # fmt: skip
async def test_nothing_else_can_be_reached(root: Path, url: str) -> None:
    names, sockets = Names(c=[["127.0.0.1"]]), Sockets()
    async with web_env(mirror=str(root), names=names, sockets=sockets) as env:
        result = await visit(env, url)
        assert result.startswith("error: ")
        assert "SECRET" not in result
        assert "root:" not in result
        assert (names.asked, sockets.dialled) == ([], [])
        assert "283 km" in await visit(env, "https://a.example/alder")


async def test_search_ranks_the_pages_of_the_folder(root: Path) -> None:
    async with web_env(mirror=str(root), environ={"SERPER_API_KEY": "k"}) as env:
        result = await search(env, "otters in the Alder", "河流", "rivers", "zebra", "spacious page", "list third")
        alder, chinese, rivers, zebra, spacious, third = result.split("\n\n")
        assert alder.splitlines()[1:3] == ["1. The Alder", "   https://a.example/alder.html"]
        assert "https://b.example/%E4%B8%AD%E6%96%87.html" in chinese
        assert "https://a.example/\n" in rivers
        assert "SECRET" not in result
        assert "style.css" not in result
        assert zebra == "query 4: zebra\nno results"
        for found, expected in ((chinese, "这条河很长"), (spacious, "a spacious page"), (third, "the third page")):
            assert expected in await visit(env, found.splitlines()[2].strip()), "what is found can be visited"
        assert await search(env, "rivers") == await search(env, "rivers")


async def test_search_finds_nothing_that_cannot_be_visited(root: Path) -> None:
    async with web_env(mirror=str(root)) as env:
        assert await search(env, "secret") == "query 1: secret\nno results"


async def test_snippets_show_plurals_as_they_stand(root: Path) -> None:
    (root / "a.example" / "long.html").write_text(
        "<p>" + "Nothing here. " * 60 + "Two cities lie on it. " + "So. " * 99
    )
    async with web_env(mirror=str(root)) as env:
        assert "Two cities lie on it." in await search(env, "cities")
        assert "Two cities lie on it." in await search(env, "Cities, city")


def with_config(config: object) -> Task:
    return Task(id="t7", instruction="q", metadata={"env_config": config})


@pytest.mark.parametrize(
    ("config", "said"),
    [({"mirrors": "x"}, "^env_config.mirrors: there is no such field; allowed: mirror"),
     ("pages", "env_config is not a mapping"), ({"mirror": 7}, "env_config.mirror is not a text"),
     ({"mirror": "../pages"}, "leads out of the tasks' folder"), ({"mirror": "/etc"}, "leads out of"),
     ({"mirror": "a\0b"}, "leads out of")],
)  # fmt: skip
def test_tasks_that_are_refused(config: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        WebEnv.check_task(with_config(config))


def test_preparing_looks_at_the_folders(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEARXNG_URL", raising=False)
    folder = root.parent
    WebEnv.check_task(TASK)
    WebEnv.check_task(with_config({"mirror": "pages"}))
    WebEnv.prepare([with_config({"mirror": "pages"})], WebSettings(), folder)
    WebEnv.prepare([TASK], WebSettings(mirror=str(root)), tmp_path)
    with pytest.raises(InputError, match=r"the mirror .*nowhere is not a folder"):
        WebEnv.prepare([with_config({"mirror": "nowhere"})], WebSettings(), folder)
    (tmp_path / "empty" / "a.example").mkdir(parents=True)
    with pytest.raises(InputError, match=r"the mirror .*empty has no pages; they are expected as <host>/<path>"):
        WebEnv.prepare([TASK], WebSettings(mirror=str(tmp_path / "empty")), folder)


def test_preparing_tells_what_it_found(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def digest(mirror: Path = root) -> str:
        return WebEnv.prepare([TASK], WebSettings(mirror=str(mirror)), tmp_path)

    first = digest()
    assert first == digest() != ""
    (root / "a.example" / ".env").write_text("hidden")
    (root / "notes.txt").write_text("beside")
    assert digest() == first, "what is no page does not count"
    assert digest(root.rename(root.with_name("moved"))) == first, "nor does where it is"
    moved = root.with_name("moved")
    (moved / "a.example" / "note.txt").write_text("a plain NOTE <b>")
    assert (changed := digest(moved)) != first, "contents count"
    (moved / "a.example" / "note.txt").rename(moved / "a.example" / "notes.txt")
    assert digest(moved) not in (first, changed), "and so do names"

    own = [with_config({"mirror": "moved"})]
    assert WebEnv.prepare(own, WebSettings(), root.parent) == WebEnv.prepare(own * 2, WebSettings(), root.parent) != ""
    monkeypatch.setenv("SEARXNG_URL", "http://127.0.0.1:9")
    assert WebEnv.prepare([TASK], WebSettings(), tmp_path) == "", "the open web has none"


async def test_a_task_names_its_own_folder_beside_its_file(root: Path) -> None:
    context = EnvContext(folder=root.parent)
    async with web_env(task=with_config({"mirror": "pages"}), context=context, mirror="elsewhere") as env:
        assert "283 km" in await visit(env, "https://a.example/alder")


def turns_of(question: str) -> list[Mapping[str, list[dict[str, object]]]]:
    script = yaml.safe_load((DATA / "web_examples.script.yaml").read_text())
    return next(reply["turns"] for reply in script["replies"] if reply["when"] in question)


@pytest.mark.parametrize("task", load_tasks(DATA / "web_examples.jsonl"), ids=lambda task: task.id)
async def test_the_examples_answers_stand_in_what_the_tools_give(task: Task) -> None:
    assert task.answer is not None
    *using, last = turns_of(task.instruction)
    env = WebEnv(task, WebSettings(), EnvContext(folder=DATA), Outside(Names(), Sockets(), {}))
    results: list[str] = []
    for turn in using:
        for tool in turn["tools"]:
            call = ToolRequest(id="c", name=str(tool["name"]), arguments=json.dumps(tool["arguments"]))
            results += (await env.step(env.decode(call))).observation.results
    await env.close()
    assert task.answer in results[-1]
    assert last["text"] == task.answer
    assert not any("error: " in each for each in results)
    for url in using[-1]["tools"][0]["arguments"]["urls"]:  # type: ignore[index,call-overload]
        assert url in results[0], "what is visited was found"


def test_the_examples_run(deskroll: Commands, tmp_path: Path, env: dict[str, str]) -> None:
    script = f"scripted:{DATA / 'web_examples.script.yaml'}"
    options = ["--env", "web", "--model", script, "--output-dir", str(tmp_path / "runs")]
    ended = deskroll("run", str(DATA / "web_examples.jsonl"), *options, cwd=tmp_path, env=env)
    assert ended.code == 0, f"{ended.err}\n{ended.out}"
    (results,) = (tmp_path / "runs").glob("*/results.jsonl")
    scores = [json.loads(line)["score"] for line in results.read_text().splitlines()]
    assert scores == [1.0] * 6
