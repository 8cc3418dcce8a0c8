"""Runs a notebook as Jupyter does: each cell of code in turn, in one namespace, inside a loop that runs; a cell may
await, and what its last line is gets shown.

    python tests/notebook.py NOTEBOOK
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import sys
from pathlib import Path
from typing import Any


async def run(notebook: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] == "code":
            await _run_cell("".join(cell["source"]), f"<cell {cell['id']}>", names)


async def _run_cell(source: str, name: str, names: dict[str, Any]) -> None:
    parts = ast.parse(source).body
    last = parts.pop() if isinstance(parts[-1], ast.Expr) else None
    awaits = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    await _ended(eval(compile(ast.Module(parts, []), name, "exec", flags=awaits), names))
    if isinstance(last, ast.Expr):
        shown = await _ended(eval(compile(ast.Expression(last.value), name, "eval", flags=awaits), names))
        if shown is not None:
            print(repr(shown))


async def _ended(value: object) -> object:
    return await value if inspect.isawaitable(value) else value


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])))
