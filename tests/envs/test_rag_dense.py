"""Retrieval by meaning: real vectors, no network."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deskroll.envs.rag.index import opened
from deskroll.envs.rag.settings import RagSettings

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "car.txt").write_text("The automobile needs petrol for its engine.")
    (tmp_path / "corpus" / "soup.txt").write_text("Boil the carrots with salt for a warm meal.")
    (tmp_path / "corpus" / "sea.txt").write_text("Waves break upon the shore of the ocean.")
    return tmp_path / "corpus"


def test_meaning_is_found_without_a_shared_word(tmp_path: Path, corpus: Path) -> None:
    pytest.importorskip("wordllama")
    before = logging.getLogger().handlers[:]
    index = opened(corpus, RagSettings(cache=tmp_path / "cache", retriever="dense"))  # type: ignore[arg-type]
    assert index.search("vehicle fuel", 1)[0].passage.source == "car.txt"
    assert index.search("cooking vegetables", 1)[0].passage.source == "soup.txt"
    assert index.search("beach", 1)[0].passage.source == "sea.txt"
    assert logging.getLogger().handlers == before


def test_it_works_without_a_network_and_without_a_home(tmp_path: Path, corpus: Path) -> None:
    """Every socket is refused, and no vectors lie in a home: those of the package are enough."""
    pytest.importorskip("wordllama")
    code = f"""
import socket, sys
def refuse(event, arguments):
    if event.startswith("socket."):
        raise OSError("no network here")
sys.addaudithook(refuse)
from pathlib import Path
from deskroll.envs.rag.index import opened
from deskroll.envs.rag.settings import RagSettings
index = opened(Path({str(corpus)!r}), RagSettings(cache=Path({str(tmp_path / "cache")!r}), retriever="dense"))
print(index.search("vehicle fuel", 1)[0].passage.source)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, timeout=60, stdout=subprocess.PIPE, check=True,
        env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert done.stdout == b"car.txt\n"


def test_without_its_package_it_says_what_to_install(tmp_path: Path, corpus: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from deskroll.envs.rag.index import opened
from deskroll.envs.rag.settings import RagSettings
sys.modules["wordllama"] = None  # as Python has it where a module cannot be imported
try:
    opened(Path({str(corpus)!r}), RagSettings(cache=Path({str(tmp_path / "cache")!r}), retriever="dense"))
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, stdout=subprocess.PIPE, check=True)
    wanted = "MissingDependency retriever 'dense' needs the module 'wordllama': pip install 'deskroll[rag-dense]'\n"
    assert done.stdout.decode() == wanted
