"""Retrieval: what is read, how it is cut and ranked, and how indexes are kept."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deskroll.actions import ToolCall
from deskroll.config import check
from deskroll.envs.base import EnvContext
from deskroll.envs.rag import RagEnv
from deskroll.envs.rag.index import opened
from deskroll.envs.rag.passages import Document, passages_of
from deskroll.envs.rag.settings import RagSettings
from deskroll.errors import ActionError, ConfigError, InputError
from deskroll.types import Task, ToolRequest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "bees.md").write_text("# Bees\n\nBees make honey.\n\nA queen lives for five years.\n")
    (folder / "ants.txt").write_text("Ants build hills of needles.\n")
    (folder / "page.html").write_text("<title>Wasps</title><p>Wasps build nests of paper.</p><script>secret()</script>")
    (folder / "tea.md").write_text("# 茶\n\n绿茶来自山坡上的茶园。\n")
    (folder / "more.jsonl").write_text('{"id": "d1", "title": "Moths", "contents": "Moths fly to lamps."}\n')
    return folder


def settings(tmp_path: Path, **options: object) -> RagSettings:
    return RagSettings.model_validate({"cache": tmp_path / "cache", **options})


def made(tmp_path: Path, corpus: Path, **options: object) -> RagEnv:
    return RagEnv(Task(id="a", instruction="q"), settings(tmp_path, corpus=corpus, **options))


async def told(env: RagEnv, query: str, top_k: int | None = None) -> str:
    arguments: dict[str, object] = {"query": query} if top_k is None else {"query": query, "top_k": top_k}
    (result,) = (await env.step([ToolCall(name="local_search", arguments=arguments, call_id="c")])).observation.results
    return result


def test_passages_end_between_paragraphs_and_know_their_lines() -> None:
    text = "one " * 30 + "\n\n" + "two " * 30 + "\n\n" + "three " * 30
    parts = list(passages_of(Document(source="s", title="t", text=text, has_lines=True), 300))
    assert [part.text[:3] for part in parts] == ["one", "thr"]
    assert [part.place for part in parts] == ["lines 1-3", "lines 5-5"]


def test_a_large_text_is_cut_in_time_that_grows_with_its_length() -> None:
    """Where every passage counts lines from the first one, this takes a minute and a half."""
    text = ("word " * 15 + "\n") * (16 * 2**20 // 76)
    began = time.process_time()
    *_, last = passages_of(Document(source="s", title="t", text=text, has_lines=True), 1200)
    assert last.place.endswith(f"-{len(text) // 76}")
    assert time.process_time() - began < 30


def test_no_passage_is_too_long_and_no_letter_is_lost() -> None:
    text = "x" * 950 + " A sentence. Another one! " * 60 + "没有空格。" * 200
    parts = list(passages_of(Document(source="s", title="t", text=text), 250))
    assert max(len(part.text) for part in parts) <= 250
    assert "".join("".join(part.text.split()) for part in parts) == "".join(text.split())
    assert parts[1].place == f"part 2 of {len(parts)}"


async def test_a_search_tells_source_place_title_score_and_text(tmp_path: Path, corpus: Path) -> None:
    result = await told(made(tmp_path, corpus), "who makes honey?", 1)
    head, text = result.split("\n", 1)
    assert head.startswith("[1] bees.md, lines 1-5; title: Bees; score ")
    assert "Bees make honey." in text
    assert "[1] more.jsonl#d1, part 1 of 1; title: Moths" in await told(made(tmp_path, corpus), "lamp")
    assert "[1] page.html, part 1 of 1; title: Wasps" in await told(made(tmp_path, corpus), "paper nest")
    assert "[1] tea.md" in await told(made(tmp_path, corpus), "山坡茶园")


async def test_hidden_parts_of_a_page_are_not_searched(tmp_path: Path, corpus: Path) -> None:
    assert await told(made(tmp_path, corpus), "secret") == "nothing was found; try other words"


async def test_how_many_are_told(tmp_path: Path, corpus: Path) -> None:
    assert (await told(made(tmp_path, corpus), "build", 50)).count("score") == 2
    assert (await told(made(tmp_path, corpus, top_k=1), "build")).count("score") == 1


async def test_a_result_has_room_for_whole_passages_only(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    file.write_text("".join(json.dumps({"id": n, "text": f"word {'filler ' * 250}"}) + "\n" for n in range(50)))
    result = await told(made(tmp_path, file, passage_chars=4000), "word", 50)
    assert result.endswith("more were found; ask for fewer, or more precisely)")
    assert len(result) < 20_000


@pytest.mark.parametrize(
    "arguments", ['{"query": ""}', '{"query": "a", "top_k": 0}', '{"query": "a", "top_k": 51}', "{}"]
)
def test_arguments_that_do_not_fit_are_refused(tmp_path: Path, corpus: Path, arguments: str) -> None:
    with pytest.raises(ActionError, match="the arguments do not fit"):
        made(tmp_path, corpus).decode(ToolRequest(id="c", name="local_search", arguments=arguments))


@pytest.mark.parametrize("options", [{"top_k": 51}, {"retriever": "magic"}, {"passage_chars": 10}, {"no_such": 1}])
def test_options_that_do_not_fit_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        check(RagSettings, options, "env_options")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"corpus": "a", "top_k": 3}, "no field 'top_k'; allowed: corpus"),
        ({"corpus": 3}, "must be the path"),
        ({"corpus": "../x"}, "leads out of the tasks' folder"),
        ({"corpus": "/etc"}, "leads out of the tasks' folder"),
        ([], "must be an object"),
    ],
)
def test_an_env_config_that_does_not_fit_is_refused(config: object, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        RagEnv.check_task(Task(id="a", instruction="q", metadata={"env_config": config}))
    assert str(caught.value).startswith("env_config"), "who calls it names the task"


def test_before_a_run_all_indexes_are_built_or_it_is_said_what_is_missing(tmp_path: Path, corpus: Path) -> None:
    own = Task(id="own", instruction="q", metadata={"env_config": {"corpus": "corpus"}})
    assert RagEnv.prepare([own, own], settings(tmp_path), tmp_path)
    assert len([each for each in (tmp_path / "cache").iterdir() if each.is_dir()]) == 1
    with pytest.raises(InputError, match=r"^task 'own': env_config.corpus: there is no file or folder .*/corpus"):
        RagEnv.prepare([own], settings(tmp_path), tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"^task 'bare': it names no corpus; set env_options.corpus"):
        RagEnv.prepare([Task(id="bare", instruction="q")], settings(tmp_path), tmp_path)


async def test_a_task_has_its_own_corpus(tmp_path: Path, corpus: Path) -> None:
    task = Task(id="own", instruction="q", metadata={"env_config": {"corpus": "corpus"}})
    env = RagEnv(task, settings(tmp_path, corpus=tmp_path / "nowhere"), EnvContext(folder=tmp_path))
    assert (await env.reset()).instruction == "q"
    assert "bees.md" in await told(env, "honey")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.jsonl", '{"text": "a"}\n{', r"c\.jsonl:2: it is not valid JSON"),
        ("c.jsonl", '{"id": "a"}\n', r"c\.jsonl:1: a document needs a text in one of text, contents, content"),
        ("c.json", '[{"text": "a"}, 3]', r"c\.json\[1\]: a document needs a text"),
        ("c.jsonl", "", "there is no text in it"),
        ("c.jsonl", '{"text": "  "}', r"c\.jsonl:1: a document needs a text"),
        ("c.jsonl", '{"text": true}', r"c\.jsonl:1: a document needs a text"),
        ("c.jsonl", '{"text": "a \\ud800 b"}', r"c\.jsonl:1: it is not valid JSON"),
        ("c.pdf", "", "allowed: a folder, .json or .jsonl"),
    ],
)
def test_a_file_that_is_no_corpus_is_refused(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        opened(tmp_path / name, settings(tmp_path))


@pytest.mark.parametrize(
    "content",
    ['[{"_id": 7, "text": "a cat"}]', '{"documents": [{"url": "7", "text": "a cat"}]}', '{"id": "7", "text": "a cat"}'],
)
def test_shapes_of_a_json_corpus(tmp_path: Path, content: str) -> None:
    (tmp_path / "c.json").write_text(content)
    (hit,) = opened(tmp_path / "c.json", settings(tmp_path)).search("cats", 5)
    assert (hit.passage.source, hit.passage.text) == ("7", "a cat")


def test_text_without_any_word_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"id": "-", "text": "!!!"}\n')
    index = opened(tmp_path / "c.jsonl", settings(tmp_path))
    assert index.search("anything", 5) == []
    assert index.search("?", 5) == []


def folders(cache: Path) -> set[str]:
    return {each.name for each in cache.iterdir() if each.is_dir()}


def test_an_index_is_kept_until_contents_or_settings_change(tmp_path: Path, corpus: Path) -> None:
    opened(corpus, settings(tmp_path))
    first = folders(tmp_path / "cache")
    (note,) = (tmp_path / "cache").glob("*/index.json")
    began = note.stat().st_mtime_ns
    opened(corpus, settings(tmp_path))
    assert (folders(tmp_path / "cache"), note.stat().st_mtime_ns) == (first, began)
    opened(corpus, settings(tmp_path, passage_chars=300))
    (corpus / "ants.txt").write_text("Ants milk aphids.\n")
    assert opened(corpus, settings(tmp_path)).search("aphids", 1)
    assert len(folders(tmp_path / "cache")) == 3


@pytest.mark.parametrize("file", ["passages.jsonl", "offsets.npy", "index.json", "vocab.index.json"])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_damaged_index_is_built_again(tmp_path: Path, corpus: Path, file: str, damage: str) -> None:
    opened(corpus, settings(tmp_path))
    (path,) = (tmp_path / "cache").glob(f"*/{file}")
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-5] if damage == "cut" else bytes([data[0] ^ 255]) + data[1:])
    (hit,) = opened(corpus, settings(tmp_path)).search("honey", 1)
    assert hit.passage.source == "bees.md"
    assert path.read_bytes() == data


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, corpus: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(InputError, match=r"its index cannot be kept in .*/cache: .*; set env_options.cache"):
        opened(corpus, settings(tmp_path))


def test_a_cache_in_the_corpus_is_refused(tmp_path: Path, corpus: Path) -> None:
    with pytest.raises(InputError, match=r"env_options.cache, .*/corpus/kept, lies in it"):
        opened(corpus, RagSettings(cache=corpus / "kept"))
    assert opened(corpus, RagSettings(cache=corpus / ".kept")).search("honey", 1)


def test_several_processes_build_one_index_once(tmp_path: Path, corpus: Path) -> None:
    code = f"""
import logging
from pathlib import Path
from deskroll.envs.rag.index import opened
from deskroll.envs.rag.settings import RagSettings
logging.basicConfig(level=logging.INFO, format="%(message)s")
opened(Path({str(corpus)!r}), RagSettings(cache=Path({str(tmp_path / "cache")!r})))
"""
    running = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    said = [process.communicate(timeout=60)[1] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert sum("passages indexed" in each for each in said) == 1, said


async def test_many_searches_at_once_share_one_index(tmp_path: Path, corpus: Path) -> None:
    results = await asyncio.gather(*(told(made(tmp_path, corpus), "honey") for _ in range(50)))
    assert len(set(results)) == 1
