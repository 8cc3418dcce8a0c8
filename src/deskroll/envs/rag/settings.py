"""Options of retrieval."""

from __future__ import annotations

import enum
from pathlib import Path

from pydantic import Field, field_validator

from deskroll.envs.tooled import ToolSettings
from deskroll.host.home import expand_home

MOST_RESULTS = 50


class Retriever(enum.StrEnum):
    """How passages are ranked."""

    BM25 = "bm25"
    """By the words that they share with the query."""
    DENSE = "dense"
    """By the likeness of meaning: averaged word vectors (WordLlama)."""


class RagSettings(ToolSettings):
    """Options of environments that search documents."""

    corpus: Path | None = None
    """A folder of texts, or a .json or .jsonl file of documents, for tasks that name none."""
    top_k: int = Field(default=5, ge=1, le=MOST_RESULTS)
    """Passages that a search gives where the model does not say how many."""
    retriever: Retriever = Retriever.BM25
    """How passages are ranked: bm25 (words) or dense (meaning; needs the extra rag-dense)."""
    passage_chars: int = Field(default=1200, ge=200, le=8000)
    """The longest passage, in characters; texts are cut between paragraphs where that is possible."""
    stem: bool = True
    """Whether English plurals are found by their singulars (bm25)."""
    cache: Path | None = None
    """Where indexes are kept; without it $XDG_CACHE_HOME/deskroll/rag, or ~/.cache/deskroll/rag."""

    @field_validator("corpus", "cache", mode="before")
    @classmethod
    def _expand_home(cls, value: object) -> object:
        return expand_home(value) if isinstance(value, str) else value
