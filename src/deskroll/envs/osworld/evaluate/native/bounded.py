"""Native readers and metrics within limits: each call in a process of its own, by `envs.limited`.

Guarantees: the event loop never waits for one, whatever a file holds; one takes no more than its bounds say, and taking
more is the file's fault, as is dying of it: both are `Unreadable`. What the machine does to a call is `EvaluatorError`.
A call that is cancelled ends its process.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from deskroll.envs.limited import (
    Bounds,
    FunctionCrashed,
    FunctionFailed,
    LimitedLost,
    LimitExceeded,
    limited,
)
from deskroll.envs.osworld.evaluate.native.jsons import value_at
from deskroll.envs.osworld.evaluate.native.metrics import METRICS
from deskroll.envs.osworld.evaluate.native.readers import READERS
from deskroll.envs.osworld.evaluate.native.values import File, NotComparable, Unreadable
from deskroll.errors import EvaluatorError, plain

BOUNDS = Bounds(seconds=300.0, cpu_seconds=20.0, memory_bytes=2**30, result_bytes=4 * 2**20)
IMAGE_BOUNDS = Bounds(seconds=300.0, cpu_seconds=60.0, memory_bytes=2 * 2**30, result_bytes=4 * 2**20)
"""The structure of 30 million pixels takes 17 s and 0.9 GB."""
_OF_IMAGES = ("image", "structure_sim")
_OF_PDFS = ("pdf",)
"""What names of getters and metrics have in them."""


async def read(getter: str, file: File, config: Mapping[str, Any]) -> object:
    """What a file says, by that getter of `READERS`; `at` and `default` in its settings pick a part of it."""
    return await _call(read_here, getter, file, config)


async def measure(metric: str, result: object, expected: object, options: Mapping[str, Any]) -> float:
    """What that metric of `METRICS` gives."""
    value = await _call(measure_here, metric, result, expected, options)
    if not isinstance(value, float):
        raise EvaluatorError(f"{metric} gave no number")
    return value


async def _call(function: Callable[[bytes], bytes], name: str, *given: object) -> object:
    try:
        bounds = IMAGE_BOUNDS if _is_of(name, _OF_IMAGES) else BOUNDS
        said = await limited(function, pickle.dumps((name, *given)), bounds, preload=_preload(name))
        found = json.loads(said)
    except (LimitExceeded, FunctionCrashed, RecursionError) as error:
        raise Unreadable(f"what was found cannot be read within bounds: {error}") from None
    except (FunctionFailed, LimitedLost) as error:
        raise EvaluatorError(f"{name}: {error}") from error
    if "unreadable" in found:
        raise Unreadable(found["unreadable"])
    if "wrong" in found:
        raise NotComparable(found["wrong"])
    return found["value"]


def _is_of(name: str, words: Sequence[str]) -> bool:
    return any(word in name for word in words)


def _preload(name: str) -> Sequence[str]:
    """What takes long to import; where it is not installed, the call itself says so."""
    wanted = ("PIL.Image", "numpy") if _is_of(name, _OF_IMAGES) else ("pypdf",) if _is_of(name, _OF_PDFS) else ()
    return [module for module in wanted if find_spec(module.partition(".")[0]) is not None]


def read_here(given: bytes) -> bytes:
    """In a process of its own: `read`."""
    name, file, config = pickle.loads(given)  # noqa: S301  (of `_call`, and nobody else)
    return _said(lambda: value_at(READERS[name](file, config), config.get("at", ()), config.get("default")))


def measure_here(given: bytes) -> bytes:
    """In a process of its own: `measure`."""
    name, result, expected, options = pickle.loads(given)  # noqa: S301  (of `_call`, and nobody else)
    return _said(lambda: float(METRICS[name](result, expected, options)))


def _said(work: Callable[[], object]) -> bytes:
    """As JSON, which can say no more than it says, whoever has taken the process over."""
    try:
        return json.dumps({"value": work()}).encode()
    except Unreadable as error:
        return json.dumps({"unreadable": plain(str(error))}).encode()
    except RecursionError:
        return json.dumps({"unreadable": "what was found is nested too deeply"}).encode()
    except NotComparable as error:
        return json.dumps({"wrong": plain(str(error))}).encode()
