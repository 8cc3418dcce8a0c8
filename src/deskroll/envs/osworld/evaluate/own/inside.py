"""What runs inside the sandbox: makes the files, calls the function, says what it gave.

Stands alone: it is sent there as text, behind the name `given`, and knows the standard library only. Files become paths
in folders of their own, as OSWorld's metrics take them; all else is as its getter gave it.
"""

from __future__ import annotations

import base64
import json
import linecache
import os
import sys
import traceback
import types
from typing import Any

_LONGEST = 10_000


def write_file(value: Any, folder: str) -> Any:
    """What a getter gave, with files written down."""
    if isinstance(value, dict) and set(value) == {"file", "base64"}:
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103  (pathlib takes longer to import than this to run)
        path = os.path.join(folder, os.path.basename(value["file"]) or "file")  # noqa: PTH118, PTH119
        with open(path, "wb") as file:  # noqa: PTH123
            file.write(base64.b64decode(value["base64"]))
        return path
    return value["value"]


def read_answer(answer: Any, name: str) -> dict[str, Any]:
    """A number with its reason."""
    value, reason = answer if isinstance(answer, tuple) and len(answer) == 2 else (answer, "")
    if not isinstance(value, (bool, int, float)) or not float("-inf") < value < float("inf"):
        raise TypeError(f"{name} gave {answer!r:.200}; a number from 0 to 1 is wanted, or (number, reason)")
    return {"value": float(value), "reason": str(reason)[:_LONGEST]}


def call(job: dict[str, Any]) -> dict[str, Any]:
    """What the function gives, or how it broke down."""
    file, source = job["file"], job["source"]
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    module = types.ModuleType("evaluator")
    module.__file__ = file
    sys.modules["evaluator"] = module
    try:
        exec(compile(source, file, "exec"), vars(module))  # noqa: S102  (this is what it is for)
        given = [write_file(each, name) for name, each in job["given"].items()]
        answer = getattr(module, job["function"])(*given, **job["options"])
        return read_answer(answer, job["function"])
    except Exception as error:  # noqa: BLE001  (whatever it raises, it is told)
        told = traceback.TracebackException.from_exception(error)
        first = next((n for n, frame in enumerate(told.stack) if frame.filename == file), 0)
        told.stack[:] = told.stack[first:]
        return {"error": f"{type(error).__name__}: {error}"[:_LONGEST], "trace": "".join(told.format())[-_LONGEST:]}


def seal_answer(given: str, seal: str) -> str:
    """The answer as text, behind the seal that only this call knows."""
    return seal + json.dumps(call(json.loads(given)))
