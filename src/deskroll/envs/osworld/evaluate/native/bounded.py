"""Files read within limits: each call in a process of its own, by `envs.limited`.

Guarantees: the event loop never waits for one, whatever a file holds; one takes no more than its bounds say, and taking
more is the file's fault, as is dying of it: both are `Unreadable`. What the machine does to a call is `EvaluatorError`.
A call that is cancelled ends its process.
"""

from __future__ import annotations

import json
import pickle
from importlib.util import find_spec

from deskroll.envs.limited import (
    Bounds,
    FunctionCrashed,
    FunctionFailed,
    LimitedLost,
    LimitExceeded,
    limited,
)
from deskroll.envs.osworld.evaluate.native.readers import LIBRARIES, READERS, read_file
from deskroll.envs.osworld.evaluate.native.values import Config, File, Unreadable
from deskroll.errors import EvaluatorError, plain

BOUNDS = Bounds(seconds=300.0, cpu_seconds=20.0, memory_bytes=2**30, result_bytes=4 * 2**20)


async def read(getter: str, file: File, config: Config) -> object:
    """What a file says, by that getter of `READERS`."""
    library = LIBRARIES.get(READERS[getter])
    if library is not None and find_spec(library) is None:
        raise EvaluatorError(f"{getter}: {library} is not installed: pip install 'deskroll[local]'")
    try:
        given = pickle.dumps((getter, file, config))
        found = json.loads(await limited(read_here, given, BOUNDS, preload=[library] if library else []))
    except (LimitExceeded, FunctionCrashed, RecursionError) as error:
        raise Unreadable(f"{file.name} cannot be read within bounds: {error}") from None
    except (FunctionFailed, LimitedLost) as error:
        raise EvaluatorError(f"{getter}: {error}") from error
    if "unreadable" in found:
        raise Unreadable(found["unreadable"])
    return found["value"]


def read_here(given: bytes) -> bytes:
    """In a process of its own: `read`. As JSON, which can say no more than it says, whoever has taken that one over."""
    getter, file, config = pickle.loads(given)  # noqa: S301  (of `read`, and nobody else)
    try:
        return json.dumps({"value": read_file(getter, file, config)}).encode()
    except Unreadable as error:
        return json.dumps({"unreadable": plain(str(error))}).encode()
    except RecursionError:
        return json.dumps({"unreadable": f"{file.name} is nested too deeply"}).encode()
