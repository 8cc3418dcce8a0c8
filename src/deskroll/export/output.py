"""Output: the folder that an export is written to.

`export.json` in it says what it is an export of and whether it is finished; it is there before anything else.
Guarantees: a folder that holds anything is refused, unless it is a broken-off export of the same thing, which is gone
on with, or `force` is given. An episode's folder appears whole or not at all. `force` removes what an earlier export
made there and replaces what has the same name; it touches nothing else, and refuses a `.part` that no export left.
One export at a time writes a folder: it holds a lock on it, which ends with its process.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from deskroll.errors import InputError, StoreError, plain
from deskroll.types import Record

MARK = "export.json"
_PART = ".part"
_DONE = f"{_PART}/done.jsonl"
_LISTED = 3


class Mark(Record, frozen=True):
    """What `export.json` holds."""

    run_id: str
    to: str
    """The layout."""
    options: dict[str, str] = msgspec.field(default_factory=dict)
    finished: bool = False
    entries: tuple[str, ...] = ()
    """Names in the folder that the export made."""

    def is_same(self, other: Mark) -> bool:
        """Whether both are exports of the same run in the same way."""
        return (self.run_id, self.to, self.options) == (other.run_id, other.to, other.options)


class _Done(msgspec.Struct, frozen=True):
    """An episode that is there: where, and which attempt it was."""

    place: str
    attempt: str


class Output:
    """Made by `Output.open`."""

    def __init__(self, path: Path, mark: Mark, done: dict[str, str]) -> None:
        self.path = path
        self._mark = mark
        self._done = done

    @classmethod
    @contextmanager
    def open(cls, path: Path, mark: Mark, *, force: bool = False) -> Iterator[Output]:
        """The folder, made ready; when the block ends without an error the export is finished."""
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        with _hold_lock(path):
            with writing(path):
                output = cls._begun(path, mark, force=force)
                output._write_mark()
                (path / _PART).mkdir(exist_ok=True)
            yield output
            with writing(path):
                shutil.rmtree(path / _PART, ignore_errors=True)
                output._mark = msgspec.structs.replace(output._mark, finished=True)
                output._write_mark()

    @classmethod
    def _begun(cls, path: Path, mark: Mark, *, force: bool) -> Output:
        held = sorted(os.listdir(path))  # noqa: PTH208  (names are all that is wanted)
        before = _read_mark(path)
        if before is not None and not before.finished and before.is_same(mark) and not force:
            return cls(path, before, _read_done(path))
        if held and not force:
            raise InputError(_refusal(path, held, before))
        if _PART in held and (before is None or before.finished):
            raise InputError(
                f"{plain(str(path / _PART))} is not of an export, and one would be written there; "
                "move it away, or choose another folder"
            )
        if before is not None:
            for name in (*before.entries, _PART):
                _remove(path / name)
        return cls(path, mark, {})

    def has(self, place: str, attempt: str) -> bool:
        """Whether this attempt is there from before, and has not been removed since."""
        return self._done.get(place) == attempt and (self.path / place).is_dir()

    def put(self, place: str, attempt: str, fill: Callable[[Path], bool]) -> bool:
        """Have a folder filled and put it at its place, in one rename; False where there was nothing to fill in."""
        part, target = self.path / _PART / "episode", self.path / place
        with writing(target):
            _remove(part)
            part.mkdir()
            if not fill(part):
                return False
            self.claim(place.partition("/")[0])
            target.parent.mkdir(parents=True, exist_ok=True)
            _remove(target)
            part.rename(target)
            self._done[place] = attempt
            with (self.path / _DONE).open("ab") as lines:
                lines.write(msgspec.json.encode(_Done(place, attempt)) + b"\n")
        return True

    def claim(self, name: str) -> None:
        """Say that something of that name is this export's, before it is made; what was there before is not."""
        if name not in self._mark.entries and not (self.path / name).exists():
            self._mark = msgspec.structs.replace(self._mark, entries=(*self._mark.entries, name))
            self._write_mark()

    def part(self, name: str) -> Path:
        """Where a file is written before it is `publish`ed."""
        return self.path / _PART / name

    def publish(self, name: str) -> None:
        """Put a file that was written at `part(name)` at its place."""
        with writing(self.path / name):
            self.claim(name)
            self.part(name).replace(self.path / name)

    def _write_mark(self) -> None:
        part = self.path / f"{MARK}{_PART}"
        part.write_bytes(msgspec.json.format(msgspec.json.encode(self._mark), indent=1) + b"\n")
        part.replace(self.path / MARK)


@contextmanager
def _hold_lock(path: Path) -> Iterator[None]:
    """The folder for this process alone; `InputError` where another one has it."""
    with writing(path):
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with writing(path):
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"{plain(str(path))} is being written by another export; wait for its end, or choose another folder"
                ) from None
        yield
    finally:
        os.close(folder)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What the system refuses, as one sentence."""
    try:
        yield
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise StoreError(
            f"cannot write {plain(str(path))}: {why}; once that is mended, the same command goes on"
        ) from error


def _read_mark(path: Path) -> Mark | None:
    try:
        mark = msgspec.json.decode((path / MARK).read_bytes(), type=Mark)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None  # none, or not ours: whatever else is in the folder decides
    safe = all(name not in ("", ".", "..") and "/" not in name and "\0" not in name for name in mark.entries)
    return mark if safe else None


def _read_done(path: Path) -> dict[str, str]:
    done = {}
    try:
        lines = (path / _DONE).read_bytes().splitlines()
    except OSError:
        return {}
    for line in lines:
        try:
            found = msgspec.json.decode(line, type=_Done)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue  # torn when the export was broken off
        done[found.place] = found.attempt
    return done


def _refusal(path: Path, held: list[str], mark: Mark | None) -> str:
    shown = plain(str(path))
    if mark is not None:
        state = "a finished" if mark.finished else "a broken-off"
        how = f" {plain(' '.join(f'--{name} {value}' for name, value in mark.options.items()))}" if mark.options else ""
        return (
            f"{shown} holds {state} export of run {plain(mark.run_id)} (--to {plain(mark.to)}{how}); "
            "choose another folder, or replace that export with --force"
        )
    names = ", ".join(plain(name) for name in held[:_LISTED]) + (", ..." if len(held) > _LISTED else "")
    return (
        f"{shown} is not empty (it holds {names}); choose another folder, or write into this one with --force: "
        "what has the same name is replaced, nothing else is touched"
    )


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
