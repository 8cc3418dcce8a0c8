"""A corpus: what is read of a folder or a file, what is passed over, and what is refused."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from deskroll.envs.rag.corpus import Corpus
from deskroll.envs.rag.index import opened
from deskroll.envs.rag.settings import RagSettings
from deskroll.errors import InputError

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "ants.txt").write_text("Ants build hills of needles.\n")
    return folder


def sources(corpus: Path) -> set[str]:
    return {document.source for document in Corpus(corpus).documents()}


def test_what_is_no_text_or_leads_out_is_passed_over_and_counted(
    tmp_path: Path, corpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "outside.txt").write_text("outside")
    (corpus / "link.txt").symlink_to(tmp_path / "outside.txt")
    (corpus / "inside.txt").symlink_to(corpus / "ants.txt")
    (corpus / "loop.txt").symlink_to("loop.txt")
    (corpus / "gone.txt").symlink_to("nowhere.txt")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "far.txt").write_text("far")
    (corpus / "linked").symlink_to(tmp_path / "folder")
    (corpus / ".git").mkdir()
    (corpus / ".git" / "note.txt").write_text("hidden")
    (corpus / "binary.txt").write_bytes(b"a\0b")
    (corpus / "latin.txt").write_bytes("é".encode("latin-1"))
    (corpus / "picture.png").write_bytes(b"png")
    (corpus / "empty.json").write_text("[3]")
    os.mkfifo(corpus / "pipe.txt")
    with caplog.at_level(logging.WARNING, "deskroll"):
        assert sources(corpus) == {"ants.txt", "inside.txt"}
    (line,) = caplog.messages
    assert line.endswith(
        "1 JSON without a text, 2 broken links, 1 hidden, 1 linked folders, 1 linked from outside, 2 not UTF-8 text, "
        "2 of other kinds"
    )


@pytest.mark.parametrize("name", [b"\xff.txt", b"\xff.md", b"\xff.html", b"\xff.jsonl"])
def test_a_name_that_is_no_utf8_is_no_trouble(tmp_path: Path, corpus: Path, name: bytes) -> None:
    content = '{"text": "a cat"}' if name.endswith(b".jsonl") else "a cat"
    Path(os.fsdecode(os.fsencode(corpus) + b"/" + name)).write_text(content)
    (hit,) = opened(corpus, RagSettings(cache=tmp_path / "cache")).search("cats", 5)
    assert hit.passage.source.startswith("\ufffd.")


def test_an_error_in_a_file_whose_name_is_no_utf8_can_be_printed(tmp_path: Path, corpus: Path) -> None:
    Path(os.fsdecode(os.fsencode(corpus) + b"/\xff.json")).write_text("{")
    with pytest.raises(InputError) as caught:
        opened(corpus, RagSettings(cache=tmp_path / "cache"))
    assert "\ufffd.json: it is not valid JSON" in str(caught.value).encode().decode()


@pytest.mark.parametrize(
    "markup",
    [
        "<p>a cat, see <![ here",
        "<p>see <!x <? <![foo[ x ]]> a cat",
        "<noscript>x<p>a cat</p>",
        "<template><p>a cat</p>",
        "<p>a cat</p><script>while (a < b) {",
        "<p>a cat</p>" + "<p x='" * 300_000,
        "<p>a cat</p>" + "<![" * 300_000,
        "<p>a cat</p>" + "<a" * 300_000,
    ],
    ids=lambda markup: markup[:24],
)
def test_a_broken_page_is_read_and_soon(tmp_path: Path, corpus: Path, markup: str) -> None:
    (corpus / "page.html").write_text(f"<title>A &amp; B</title>{markup}")
    hits = opened(corpus, RagSettings(cache=tmp_path / "cache")).search("cats", 5)
    assert hits[0].passage.source == "page.html"
    assert hits[0].passage.title == "A & B"


def test_the_first_field_with_a_text_is_taken(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text('{"text": "", "contents": "a cat"}\n{"text": null, "content": "a dog"}\n')
    assert [each.text for each in Corpus(tmp_path / "c.jsonl").documents()] == ["a cat", "a dog"]


def test_a_file_of_documents_is_not_held_in_memory(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + b'{"text": "%b"}\r\n' % (b"word " * 200) * 16_000)
    corpus = Corpus(file)
    tracemalloc.start()
    try:
        count = sum(1 for _ in corpus.documents())
        assert tracemalloc.get_traced_memory()[1] < 2_000_000 < file.stat().st_size
    finally:
        tracemalloc.stop()
    assert count == 16_000
    assert corpus.digest_read == corpus.digest()


def test_a_line_that_is_no_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_bytes(b'{"text": "a"}\n{"text": "\xff"}\n')
    with pytest.raises(InputError, match=r"c\.jsonl:2: it is not UTF-8 text; save it as UTF-8"):
        list(Corpus(tmp_path / "c.jsonl").documents())


def test_what_is_read_has_the_digest_of_what_is_there(corpus: Path) -> None:
    (corpus / "more.jsonl").write_text('{"text": "a"}\n')
    (corpus / "latin.txt").write_bytes(b"\xff")
    read = Corpus(corpus)
    before = read.digest()
    list(read.documents())
    assert read.digest_read == before
    (corpus / "latin.txt").write_bytes(b"\xfe")
    list(read.documents())
    assert read.digest_read == read.digest() != before


@pytest.mark.parametrize("kind", ["pipe", "loop", "missing", "below a file"])
def test_what_can_be_no_corpus_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "c.jsonl"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to("c.jsonl")
    elif kind == "below a file":
        path.write_text("")
        path /= "deeper"
    with pytest.raises(InputError, match="neither a folder nor a file" if kind == "pipe" else "there is no such file"):
        Corpus(path)


@pytest.mark.parametrize(
    ("what", "mode", "named"),
    [("sub", 0o000, "sub"), ("sub", 0o444, "sub/b.txt"), ("sub/b.txt", 0o000, "sub/b.txt"), (".", 0o000, ".")],
)
def test_what_may_not_be_read_is_named_and_not_left_out(corpus: Path, what: str, mode: int, named: str) -> None:
    """By somebody who is not root, whom no mode keeps out."""
    (corpus / "sub").mkdir()
    (corpus / "sub" / "b.txt").write_text("b")
    for each in (corpus, corpus / "sub", corpus / "ants.txt", corpus / "sub" / "b.txt"):
        each.chmod(0o755)
    code = """
import os, sys
from pathlib import Path
from deskroll.envs.rag.corpus import Corpus
from deskroll.errors import InputError
os.chdir(sys.argv[1])
"".encode("utf-8-sig")  # Python itself may lie where only root can read
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    list(Corpus(Path("corpus")).documents())
except InputError as error:
    print(error)
"""
    wanted = str(Path("corpus") / named)
    corpus.parent.chmod(0o755)
    (corpus / what).chmod(mode)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, str(corpus.parent)], cwd=ROOT, stdout=subprocess.PIPE,
            timeout=60, check=True, text=True,
        )  # fmt: skip
    finally:
        (corpus / what).chmod(0o755)
    assert done.stdout == f"corpus {wanted}: it cannot be read: Permission denied\n"
