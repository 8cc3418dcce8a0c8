"""Questions with a search over documents: the run's corpus (`env_options.corpus`), or the task's own (`env_config`)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from deskroll.envs.rag.index import Hit
from deskroll.envs.rag.settings import MOST_RESULTS, RagSettings
from deskroll.envs.rag.shelf import Shelf
from deskroll.envs.tooled import LONGEST_RESULT, ToolEnv, ToolFunction, ToolSettings, refuse_desktop_parts
from deskroll.errors import InputError, plain
from deskroll.host.below import LeadsOut, resolve_below
from deskroll.types import Observation, Record, Task

_SHELF = Shelf()
_OUTSIDE = "env_config.corpus leads out of the tasks' folder; use env_options.corpus instead"
_ROOM = LONGEST_RESULT - 200


class Search(Record, frozen=True):
    """What to look for."""

    query: Annotated[str, msgspec.Meta(min_length=1, max_length=2_000)]
    top_k: Annotated[int, msgspec.Meta(ge=1, le=MOST_RESULTS)] | None = None


class RagEnv(ToolEnv):
    """A question and documents to find the answer in."""

    Settings: ClassVar[type[ToolSettings]] = RagSettings
    settings: RagSettings

    @staticmethod
    def check_task(task: Task) -> None:
        """Nothing of a desktop; its `env_config` may name a corpus, and nothing else."""
        refuse_desktop_parts(task)
        _own_corpus(task)

    @staticmethod
    def prepare(tasks: Sequence[Task], settings: RagSettings, folder: Path) -> str:
        """Build every index that the tasks need, and open it; returns a digest of them all."""
        corpora: dict[str, Path] = {}
        for task in tasks:
            try:
                corpora[_own_corpus(task) or ""] = _there(_corpus(task, settings, folder), task)
            except InputError as error:
                raise InputError(f"task {task.id!r}: {error}") from None
        found = [(own, _SHELF.renew(path, settings).name) for own, path in sorted(corpora.items())]
        return hashlib.blake2b(msgspec.json.encode(found), digest_size=16).hexdigest() if found else ""

    def functions(self) -> Mapping[str, ToolFunction]:
        """The search."""
        description = (
            "Search the documents for passages about a query; each result has its source, title, score and text. "
            f"top_k: how many (at most {MOST_RESULTS}; {self.settings.top_k} unless you say)."
        )
        return {"local_search": ToolFunction("local_search", description, Search, self._search)}

    async def reset(self) -> Observation:
        """Open the documents' index and show the question."""
        await _SHELF.index(self._path(), self.settings)
        return await super().reset()

    def _path(self) -> Path:
        return _corpus(self.task, self.settings, self.context.folder)

    async def _search(self, given: Search) -> str:
        most = given.top_k or self.settings.top_k
        return _told(await _SHELF.search(self._path(), self.settings, given.query, most))


def _own_corpus(task: Task) -> str | None:
    given = task.metadata.get("env_config", {})
    if not isinstance(given, dict):
        raise InputError(f"env_config is a {type(given).__name__}; it must be an object")
    unknown = sorted(set(given) - {"corpus"})
    if unknown:
        raise InputError(f"env_config has no field {unknown[0]!r}; allowed: corpus")
    corpus = given.get("corpus")
    if corpus is not None and (not isinstance(corpus, str) or not corpus.strip() or "\0" in corpus):
        raise InputError("env_config.corpus must be the path of a folder or file")
    if corpus is not None and (Path(corpus).is_absolute() or ".." in Path(corpus).parts):
        raise InputError(_OUTSIDE)
    return corpus


def _corpus(task: Task, settings: RagSettings, folder: Path) -> Path:
    own = _own_corpus(task)
    if own is not None:
        try:
            return resolve_below(folder, own)
        except LeadsOut:
            raise InputError(_OUTSIDE) from None
        except OSError as error:
            raise InputError(f"env_config.corpus: {error.strerror}") from None
    path = settings.corpus
    if path is None:
        raise InputError("it names no corpus; set env_options.corpus, or its own env_config.corpus")
    return path


def _there(path: Path, task: Task) -> Path:
    try:
        there = path.exists()
    except OSError:  # a folder above it may not be read, or its name is too long
        there = False
    if not there:
        where = "env_options.corpus" if _own_corpus(task) is None else "env_config.corpus"
        raise InputError(f"{where}: there is no file or folder {plain(str(path), 4096)}, or none that may be read")
    return path


def _told(hits: Sequence[Hit]) -> str:
    if not hits:
        return "nothing was found; try other words"
    parts: list[str] = []
    room = _ROOM
    for n, hit in enumerate(hits, 1):
        passage = hit.passage
        head = f"[{n}] {plain(passage.source, 300)}, {passage.place}; title: {plain(passage.title, 300)}"
        part = f"{head}; score {hit.score:.3f}\n{passage.text}"
        room -= len(part) + 2
        if room < 0 and parts:
            parts.append(f"({len(hits) - n + 1} more were found; ask for fewer, or more precisely)")
            break
        parts.append(part)
    return "\n\n".join(parts)
