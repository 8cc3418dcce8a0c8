"""Calls OSWorld's metrics as they are: in their own environment, without the worker, the sandbox and the desktop.

Reads a list of `{func, result, expected, options}` on standard input, and prints the value of each, or null where the
metric raised. `{"name": ..., "base64": ...}` stands for the path of a file with that content.
"""

import base64
import importlib
import json
import os
import sys
import tempfile
import types
from pathlib import Path
from typing import Any


def given(value: Any, folder: str) -> Any:
    if not isinstance(value, dict) or set(value) != {"name", "base64"}:
        return value
    path = Path(folder, value["name"])
    path.write_bytes(base64.b64decode(value["base64"]))
    return str(path)


def value_of(case: dict[str, Any], metrics: Any) -> float | None:
    with tempfile.TemporaryDirectory() as folder:
        sides = [given(case[side], folder) for side in ("result", "expected")]
        try:
            return float(getattr(metrics, case["func"])(*sides, **case["options"]))
        except BaseException:  # noqa: BLE001  (whatever it raises)
            return None


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what metrics print is no answer
    sys.modules["easyocr"] = types.ModuleType("easyocr")
    found = importlib.import_module("desktop_env.evaluators.metrics")
    json.dump([value_of(case, found) for case in json.load(sys.stdin)], answers)
    answers.close()
