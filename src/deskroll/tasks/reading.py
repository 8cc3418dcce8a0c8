"""JSON as people write it: read from a file, refused with the place where it is wrong.

Guarantees: whatever is wrong is one `InputError` that names the file, and the line where there is one; of two equal
keys none is dropped in silence, and numbers are what 64 bits hold.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from pathlib import Path

from deskroll.errors import InputError

LARGEST_FILE = 2 * 1024**3


def read_text(path: Path) -> str:
    """The text of a file of tasks."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path}: it is larger than {LARGEST_FILE // 1024**3} GiB; split it")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file; name a .json or .jsonl file of tasks") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except (OSError, ValueError) as error:  # a ValueError: a null byte in the name
        raise InputError(f"{path}: it cannot be read: {getattr(error, 'strerror', None) or error}") from None


def text_of(data: bytes, name: str) -> str:
    """The text of a file whose bytes were read; `name` is the file's."""
    try:
        return io.StringIO(data.decode("utf-8-sig"), newline=None).read()
    except UnicodeDecodeError as error:
        raise InputError(f"{name}: byte {error.start} is not UTF-8; save the file as UTF-8") from None


def is_folder(path: Path) -> bool:
    """Whether it is one; what cannot be looked at is none."""
    return os.path.isdir(path)  # noqa: PTH112  (Path.is_dir raises where a name is too long, or a folder closed)


def is_file(path: Path) -> bool:
    """Whether it is one; what cannot be looked at is none."""
    return os.path.isfile(path)  # noqa: PTH113  (as above)


def decode(text: str, name: str, first_line: int = 1) -> object:
    """What JSON says; `name` and `first_line` say where it stands, for error messages."""
    try:
        return json.loads(text, object_pairs_hook=_without_doubles, parse_int=_whole, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{name}:{first_line + error.lineno - 1}: it is not valid JSON, at column {error.colno}: {error.msg}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}:{first_line}: it is not valid JSON: {error}") from None


def kind_of(value: object) -> str:
    """What a value is, in a word."""
    names = {dict: "object", list: "list", str: "text", bool: "boolean", type(None): "null value"}
    return names.get(type(value), "number")


def _without_doubles(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(each for each in names if names.count(each) > 1)!r} is there twice")
    return data


def _whole(digits: str) -> int:
    if len(digits) > 18 and not -(2**63) <= int(digits[:30]) < 2**63:
        raise ValueError(f"{digits[:20]}... is larger than 64 bits hold; write it as a text, in quotes")
    return int(digits)


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON; write null, or a text in quotes")
