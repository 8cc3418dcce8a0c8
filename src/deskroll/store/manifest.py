"""The manifest of an attempt (`episode.json`), and how its token ids are kept (`tokens.npz`).

The manifest is an Episode with the list of every other file of the folder. It is written last: an attempt that has one
is whole. It is the attempt's own account; where the journal's record of it differs (a second desktop that died is
blamed on the agent, which no single attempt can know), the journal decides.

Token ids and log-probabilities of all steps lie one after another in flat arrays, with the lengths of each step's part
(-1: the model gave none), so that very many numbers cost little; they come back exactly.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from deskroll.errors import MissingDependency, StoreError, plain
from deskroll.types import Completion, Episode, Record, Step


class StoredFile(Record, frozen=True):
    """A file of an attempt, as it was when it was sealed."""

    name: str
    """Relative to the attempt's folder."""
    size: int
    sha256: str
    """The digest of its content, in hexadecimal."""


class Manifest(Episode, frozen=True):
    """An Episode and the files that belong to it."""

    files: tuple[StoredFile, ...] = ()

    @classmethod
    def of(cls, episode: Episode, files: Iterable[StoredFile]) -> Manifest:
        """The manifest of an attempt."""
        return cls(**msgspec.structs.asdict(episode), files=tuple(files))

    def encode(self) -> bytes:
        """As it is written: one field a line."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"


def digest(data: bytes = b"") -> hashlib._Hash:
    """The digest that manifests hold: processors have an instruction for it, so it is twice as fast as blake2b."""
    return hashlib.sha256(data, usedforsecurity=False)


_TOKENS = ("prompt_token_ids", "token_ids", "logprobs")
_LARGEST_ID = 2**31 - 1


class Tokens:
    """The token ids and log-probabilities of an attempt's steps, apart from the steps."""

    def __init__(self) -> None:
        self._taken: list[tuple[int, Completion]] = []
        self._keep: bool | None = None

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, step: Step) -> Step:
        """The step without them; as it was where it has none, or where they cannot be kept in arrays."""
        completion = step.completion
        if completion is None or all(getattr(completion, name) is None for name in _TOKENS):
            return step
        if self._keep is None:
            self._keep = importlib.util.find_spec("numpy") is not None
        if not self._keep or not (_are_ids(completion.prompt_token_ids) and _are_ids(completion.token_ids)):
            return step
        self._taken.append((step.index, completion))
        bare = msgspec.structs.replace(completion, prompt_token_ids=None, token_ids=None, logprobs=None)
        return msgspec.structs.replace(step, completion=bare)

    def encode(self) -> bytes:
        """The content of `tokens.npz`."""
        import numpy as np  # noqa: PLC0415  (an extra, and slow to import)

        arrays: dict[str, Any] = {"steps": np.array([index for index, _ in self._taken], dtype=np.int32)}
        for name in _TOKENS:
            parts = [getattr(completion, name) for _, completion in self._taken]
            dtype = np.float64 if name == "logprobs" else np.int32
            arrays[f"{name}_lengths"] = np.array([-1 if part is None else len(part) for part in parts], dtype=np.int32)
            arrays[name] = np.array([each for part in parts for each in part or ()], dtype=dtype)
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        return buffer.getvalue()


def _are_ids(ids: Sequence[int] | None) -> bool:
    return not ids or (min(ids) >= 0 and max(ids) <= _LARGEST_ID)


def restore_tokens(steps: Sequence[Step], data: bytes, name: str) -> list[Step]:
    """The steps with what `tokens.npz` holds put back into them."""
    try:
        import numpy as np  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependency(f"{name} needs the module 'numpy' to be read: pip install numpy") from error
    found: dict[int, dict[str, tuple[int, ...] | tuple[float, ...]]] = {}
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            indexes = arrays["steps"].tolist()
            for field in _TOKENS:
                values, place = arrays[field].tolist(), 0
                for index, length in zip(indexes, arrays[f"{field}_lengths"].tolist(), strict=True):
                    if length >= 0:
                        found.setdefault(index, {})[field] = tuple(values[place : place + length])
                        place += length
    except (ValueError, KeyError, OSError, EOFError) as error:
        raise StoreError(f"{name} cannot be read: {plain(str(error))}; the file is damaged") from error
    return [
        msgspec.structs.replace(step, completion=msgspec.structs.replace(step.completion, **found[step.index]))
        if step.completion is not None and step.index in found
        else step
        for step in steps
    ]
