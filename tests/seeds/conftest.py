"""A checkout as the documents' user has it, and the documents' model: a scripted one, over HTTP."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deskroll.models.scripted import Script
from deskroll.store import Run
from deskroll.types import Episode
from tests.commands import clean_environment

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Came:
    """What came of a command."""

    code: int
    out: str
    err: str
    run: Run

    def outcomes(self) -> dict[str, Episode]:
        """By the task's id."""
        return {each.key.task: each for each in self.run.outcomes()}

    def messages(self, task: str) -> list[dict[str, Any]]:
        """The conversation of a task."""
        episode = self.outcomes()[task]
        return [json.loads(each) for each in self.run.attempt(episode.key, episode.attempt).messages()]

    def most_desktops(self) -> int:
        """How many desktops were alive at once, at most."""
        alive: set[str] = set()
        most = 0
        for change in self.run.desktop_changes():
            (alive.discard if change.state in ("gone", "stopped") else alive.add)(change.desktop)
            most = max(most, len(alive))
        return most


class Checkout:
    """A working folder that holds what the project's has, and what the documents' placeholders stand for."""

    def __init__(self, folder: Path, server: str, runtime: Path) -> None:
        self.folder = folder
        for name in ("src", "data", "benchmarks", "tinker_cookbook"):
            (folder / name).symlink_to(ROOT / name)
        self.env = clean_environment(runtime, OPENAI_BASE_URL=server, OPENAI_API_KEY="sk-test")
        self.env["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"

    def place(self, example: str) -> None:
        """Have path/to/benchmark.jsonl be that example, with the folders that its tasks name."""
        place = self.folder / "path" / "to"
        place.mkdir(parents=True)
        shutil.copy(ROOT / "data" / f"{example}.jsonl", place / "benchmark.jsonl")
        for name in ("rag_corpus", "web_site"):
            shutil.copytree(ROOT / "data" / name, place / name)

    def shell(self, command: str, **env: str) -> Came:
        """Run a command as it is written."""
        return self._ended(["bash", "-ec", command], env)

    def python(self, source: str, **env: str) -> Came:
        """Run a script at the checkout's root."""
        script = self.folder / "script.py"
        script.write_text(source)
        return self._ended(["python", "script.py"], env)

    def _ended(self, command: list[str], env: dict[str, str]) -> Came:
        ended = subprocess.run(
            command,
            cwd=self.folder,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )
        runs = sorted((self.folder / "results").rglob("run.json"))
        assert len(runs) == 1, ended.stderr
        return Came(ended.returncode, ended.stdout, ended.stderr, Run.open(runs[0].parent))


@contextmanager
def serve(script: Path) -> Iterator[str]:
    """A scripted model in a process of its own; yields its address."""
    command = [sys.executable, "-m", "deskroll", "models", "scripted", str(script), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serves the scripts of all example files as one."""
    scripts = [Script.load(path) for path in sorted(ROOT.glob("*/*.script.yaml"))]
    replies = [reply for script in scripts for reply in script.model_dump(mode="json")["replies"]]
    path = tmp_path_factory.mktemp("model") / "all.json"
    path.write_text(json.dumps({"replies": replies}))
    with serve(path) as url:
        yield url


@pytest.fixture
def checkout(tmp_path: Path, model: str, runtime_folder: Path) -> Checkout:
    return Checkout(tmp_path, model, runtime_folder)
