"""Documents that are written as JSON: which fields hold the text, the title and the id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from deskroll.envs.rag.passages import Document
from deskroll.errors import InputError, plain

_TEXT_FIELDS = ("text", "contents", "content")
_ID_FIELDS = ("id", "_id", "doc_id", "url")
_LONGEST_NAME = 300
"""Characters that are kept of titles and ids."""


class Records:
    """The documents of one file. What is no document is an error, or counted where there is a counter."""

    def __init__(self, file: str, name: str = "", skipped: Counter[str] | None = None) -> None:
        self._file = file
        self._name = name
        self._skipped = skipped

    def of_lines(self, lines: Iterable[tuple[int, str]]) -> Iterator[Document]:
        """Those of a .jsonl, one a line, by the lines' numbers."""
        for n, line in lines:
            if line.strip():
                yield from self._document(_json(line, f"{self._file}:{n}"), n, f"{self._file}:{n}")

    def of_text(self, text: str) -> Iterator[Document]:
        """Those of a .json: a list of documents, one document, or an object that holds a list of them."""
        data = _json(text, self._file)
        if isinstance(data, dict):
            inner = next((data[key] for key in ("documents", "items") if isinstance(data.get(key), list)), None)
            data = [data] if inner is None else inner
        for n, each in enumerate(data if isinstance(data, list) else [data], 1):
            yield from self._document(each, n, f"{self._file}[{n - 1}]")

    def _document(self, record: object, n: int, where: str) -> Iterator[Document]:
        body = _field(record, _TEXT_FIELDS)
        if not body:
            if self._skipped is None:
                raise InputError(f"corpus {where}: a document needs a text in one of {', '.join(_TEXT_FIELDS)}")
            self._skipped["JSON without a text"] += 1
            return
        title = plain(_field(record, ("title",)), _LONGEST_NAME)
        identity = plain(_field(record, _ID_FIELDS), _LONGEST_NAME) or str(n)
        if not title and body.startswith('"') and '"\n' in body[:300]:  # as Pyserini's corpora have it
            title, _, body = body[1:].partition('"\n')
        source = f"{self._name}#{identity}" if self._name else identity
        yield Document(source=source, title=title or identity, text=body)


def _json(text: str, where: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError(f"corpus {where}: it is not valid JSON: {error}") from None


def _field(record: object, names: Sequence[str]) -> str:
    """The first of these fields that says anything."""
    if not isinstance(record, dict):
        return ""
    given = (record.get(name) for name in names)
    texts = (str(each) for each in given if isinstance(each, str | int) and not isinstance(each, bool))
    return next((each for each in texts if each.strip()), "")
