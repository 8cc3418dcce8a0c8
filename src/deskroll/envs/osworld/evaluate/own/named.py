"""How a task names a function of its own, and the file that it is in."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deskroll.envs.osworld.setup.downloads import bundled, read_bundled
from deskroll.errors import InputError, SetupError, plain
from deskroll.types import Record

PREFIX = "file:"
"""What the name of such a function begins with."""
_LARGEST = 1024 * 1024


class Function(Record, frozen=True):
    """A function in a file."""

    file: str
    """Relative to the folder of the tasks."""
    name: str

    @classmethod
    def parse(cls, func: str) -> Function:
        """Read `file:my_check.py:check`."""
        file, _, name = func.removeprefix(PREFIX).rpartition(":")
        if not file.endswith(".py") or not name.isidentifier():
            raise InputError(
                f"evaluator.func is {plain(func)!r}; write file:FILE.py:FUNCTION, e.g. file:check.py:check"
            )
        return cls(file=file, name=name)

    def path(self, folder: Path | None) -> Path:
        """Where the file is; `InputError` where it is not below the folder of the tasks."""
        try:
            return bundled(self.file, folder)
        except SetupError as error:
            raise InputError(f"evaluator.func: {error}") from None

    def source(self, folder: Path | None) -> str:
        """What the file says; `InputError` where it is not valid Python, or has no such function."""
        try:
            source = read_bundled(self.file, folder, _LARGEST).decode("utf-8")
            tree = ast.parse(source, self.file)
        except SetupError as error:
            raise InputError(f"evaluator.func: {error}") from None
        except UnicodeDecodeError as error:
            raise InputError(f"evaluator.func: {self.file} cannot be read: {error}") from None
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise InputError(f"evaluator.func: {self.file} is not valid Python: {error}") from None
        names = [each.name for each in tree.body if isinstance(each, ast.FunctionDef)]
        if self.name not in names:
            raise InputError(
                f"evaluator.func: {self.file} has no function {self.name}; it has: {', '.join(names) or 'none'}"
            )
        return source


def is_own(func: str) -> bool:
    """Whether a metric is a function of the task's own."""
    return func.startswith(PREFIX)


def own_functions(evaluator: Mapping[str, Any]) -> Iterator[Function]:
    """Those that an evaluator names."""
    func = evaluator.get("func")
    for each in func if isinstance(func, list) else [func]:
        if isinstance(each, str) and is_own(each):
            yield Function.parse(each)
