"""AttemptReader: the folder of one attempt, sealed or not.

A sealed one is as its manifest says, and `verify` tells whether that still holds. Of one that was not sealed
(its process was killed, or it goes on) everything is read that was handed over whole.
"""

from __future__ import annotations

import json

import msgspec

from deskroll.errors import StoreError, plain
from deskroll.store import journal, paths
from deskroll.store.manifest import Manifest, StoredFile, digest, restore_tokens
from deskroll.store.storage import Storage
from deskroll.types import Episode, Step, Task

_step_decoder = msgspec.json.Decoder(Step)
_messages_decoder = msgspec.json.Decoder(list[msgspec.Raw])


class AttemptReader:
    """What one attempt left behind."""

    def __init__(self, storage: Storage, folder: str) -> None:
        self.folder = folder
        """Relative to the run's folder."""
        self._storage = storage

    @property
    def shown(self) -> str:
        """Its folder in a message."""
        return self._storage.shown(self.folder)

    @property
    def sealed(self) -> bool:
        """Whether it is whole."""
        return self._exists(paths.EPISODE_JSON)

    def manifest(self) -> Manifest | None:
        """Its record with the list of files; None when it was not sealed."""
        if not self.sealed:
            return None
        try:
            return msgspec.json.decode(self.read(paths.EPISODE_JSON), type=Manifest)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._damaged(paths.EPISODE_JSON, error) from error

    def episode(self) -> Episode | None:
        """Its record; None when it was not sealed."""
        manifest = self.manifest()
        if manifest is None:
            return None
        return Episode(**{name: getattr(manifest, name) for name in Episode.__struct_fields__})

    def task(self) -> Task | None:
        """The task as it was run; None where it was not kept: by older versions, or before it began."""
        if not self._exists(paths.TASK_JSON):
            return None
        try:
            return msgspec.json.decode(self.read(paths.TASK_JSON), type=Task)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._damaged(paths.TASK_JSON, error) from error

    def steps(self) -> list[Step]:
        """Its steps, with token ids and log-probabilities."""
        data = self.read(paths.STEPS) if self._exists(paths.STEPS) else b""
        steps = journal.decode_lines(data, _step_decoder, self._shown(paths.STEPS))
        if not self._exists(paths.TOKENS):
            return steps
        return restore_tokens(steps, self.read(paths.TOKENS), self._shown(paths.TOKENS))

    def messages(self) -> list[bytes]:
        """The conversation, one JSON object a message; a torn last one is left out where it was not sealed."""
        if not self._exists(paths.CONVERSATION):
            return []
        data = self.read(paths.CONVERSATION)
        try:
            return [bytes(each) for each in _messages_decoder.decode(data)]
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            if self.sealed:
                raise self._damaged(paths.CONVERSATION, error) from error
        return list(_whole_messages(data.decode("utf-8", "replace")))

    def image(self, name: str) -> bytes:
        """A screen, by the name that a step or a message gives it."""
        return self.read(name)

    def read(self, name: str) -> bytes:
        """Any file of the attempt."""
        return self._storage.read(f"{self.folder}/{name}")

    def files(self) -> list[str]:
        """The names of all files, sorted."""
        names = []
        for name in self._storage.list(self.folder):
            if name.endswith("/"):
                names += [name + each for each in self._storage.list(f"{self.folder}/{name[:-1]}")]
            else:
                names.append(name)
        return names

    def verify(self) -> list[str]:
        """What differs from the manifest, a line each; empty: nothing does."""
        manifest = self.manifest()
        if manifest is None:
            return [f"{self._shown(paths.EPISODE_JSON)}: missing; the attempt was not sealed"]
        return [problem for file in manifest.files if (problem := self._compare(file))]

    def _compare(self, file: StoredFile) -> str:
        shown = self._shown(plain(file.name))
        try:
            if not self._exists(file.name):
                return f"{shown}: missing"
            data = self.read(file.name)
        except StoreError as error:
            return str(error)
        if len(data) != file.size:
            return f"{shown}: holds {len(data)} bytes, not {file.size}"
        return "" if digest(data).hexdigest() == file.sha256 else f"{shown}: its content has changed"

    def _exists(self, name: str) -> bool:
        return self._storage.exists(f"{self.folder}/{name}")

    def _shown(self, name: str) -> str:
        return self._storage.shown(f"{self.folder}/{name}")

    def _damaged(self, name: str, error: Exception) -> StoreError:
        return StoreError(f"{self._shown(name)} cannot be read: {plain(str(error))}; the file is damaged")


def _whole_messages(text: str) -> list[bytes]:
    """The messages of a conversation that was not ended, up to the first that is not whole."""
    decoder = json.JSONDecoder()
    found: list[bytes] = []
    place = 1  # after the "["
    while True:
        while place < len(text) and text[place] in ", \n\r\t":
            place += 1
        try:
            _, end = decoder.raw_decode(text, place)
        except ValueError:
            return found
        found.append(text[place:end].encode())
        place = end
