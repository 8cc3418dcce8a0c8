"""Imports code that is somebody else's: a module by its name, or a file.

Modules are looked for in the working directory, too, after all other places; a file finds what lies beside it in the
same way. Guarantees: whatever goes wrong in that code is one `InputError`, which shows where; and it starts no run
while it is imported, in which it would be imported again, without end.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType

from deskroll.errors import InputError, foreign_code

SUFFIX = ".py"
"""What the name of a file with a part ends with."""
_IMPORTING: ContextVar[str] = ContextVar("importing", default="")
"""What is being imported by whoever asks; empty: nothing."""


def refuse_while_importing(what: str) -> None:
    """Raise an `InputError` where somebody's code does this while it is imported as a part."""
    if part := _IMPORTING.get():
        raise InputError(
            f"{what} while {part} is imported, which would go on without end; put what that file does when it is run "
            f'as a program below  if __name__ == "__main__":'
        )


@contextmanager
def _importing(part: str, file: str) -> Iterator[None]:
    token = _IMPORTING.set(part)
    try:
        with foreign_code(f"{part}: {file} cannot be imported"):
            yield
    finally:
        _IMPORTING.reset(token)


def place_file(name: str) -> str:
    """The name of a part, with the file that it is in by a path that holds from everywhere; others as they are."""
    file, colon, attribute = name.rpartition(":")
    return f"{Path(file).expanduser().absolute()}:{attribute}" if colon and file.endswith(SUFFIX) else name


def file_of(name: str) -> Path | None:
    """The file that a part is in, where it is named by one."""
    file, colon, _ = place_file(name).rpartition(":")
    return Path(file) if colon and file.endswith(SUFFIX) else None


def file_digest(name: str) -> str:
    """The digest of the file that a part is in; empty where it is not named by one, or the file is gone."""
    file = file_of(name)
    try:
        return "" if file is None else hashlib.blake2b(file.read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return ""


def import_module(kind: str, name: str, module_name: str) -> ModuleType:
    """Import somebody's module; `InputError` says that there is none, or shows where in it importing failed."""
    _look_in(Path.cwd())
    with _importing(f"{kind} {name!r}", module_name):
        try:
            return importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if not _is_or_contains(error.name, module_name):
                raise
            raise InputError(
                f"{kind} {name!r}: there is no module {error.name!r}; is it installed, on PYTHONPATH, or here?"
            ) from error


def import_file(kind: str, name: str, file: Path) -> ModuleType:
    """Import a file under a name that no module has, once."""
    if not file.is_file():
        raise InputError(f"{kind} {name!r}: there is no file {str(file)!r}")
    module_name = f"deskroll_file_{hashlib.blake2b(bytes(file), digest_size=8).hexdigest()}_{file.stem}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    _look_in(file.parent)
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise InputError(f"{kind} {name!r}: {str(file)!r} is not a Python file")
    module = sys.modules[module_name] = importlib.util.module_from_spec(spec)
    try:
        with _importing(f"{kind} {name!r}", file.name):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module


def _look_in(folder: Path) -> None:
    """Find modules there, too: last of all, so that no file takes the place of a library."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _is_or_contains(missing: str | None, module_name: str) -> bool:
    return missing is not None and f"{module_name}.".startswith(f"{missing}.")
