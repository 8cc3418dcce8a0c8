"""One part judged by upstream's code, on one desktop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from deskroll.desktops.base import Desktop
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.envs.osworld.evaluate.parts import Getter, Part
from deskroll.envs.osworld.evaluate.upstream.place import find_environment, missing
from deskroll.envs.osworld.evaluate.upstream.relay import serve_desktop
from deskroll.envs.osworld.evaluate.upstream.worker_pool import WorkerPool
from deskroll.envs.osworld.setup.context import SetupContext
from deskroll.envs.osworld.setup.downloads import fetch
from deskroll.errors import EvaluatorError, FailureKind, SetupError, plain
from deskroll.host.below import open_linked_below
from deskroll.scoring.excerpt import excerpts
from deskroll.types import Score, Task

JUDGE_S = 300.0
"""How long one part may take: a page of a slow site is waited for by upstream itself for minutes."""
_pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, WorkerPool] = weakref.WeakKeyDictionary()


class UpstreamError(EvaluatorError):
    """Upstream's code did not come to a value."""

    kind = FailureKind.UPSTREAM_ERROR

    def __init__(self, message: str, trace: str) -> None:
        super().__init__(message)
        self.trace = trace


def worker_pool() -> WorkerPool:
    """The workers of the running loop."""
    loop = asyncio.get_running_loop()
    if loop not in _pools:
        environment = find_environment()
        if environment is None:
            raise EvaluatorError(missing())
        _pools[loop] = WorkerPool(environment)
    return _pools[loop]


async def close_workers() -> None:
    """End the workers of the running loop."""
    found = _pools.pop(asyncio.get_running_loop(), None)
    if found is not None:
        await found.close()


async def judge(
    part: Part,
    desktop: Desktop,
    task: Task,
    context: SetupContext,
    seconds: float = JUDGE_S,
    *,
    note: Callable[[str], object] = lambda text: None,
) -> Score:
    """The value of one part; `EvaluatorError` where there is none, a `DesktopError` where it is the desktop's fault.

    The limit of `seconds` begins when a worker is free. `note` gets the traceback behind a 0 for a broken file.
    """
    if not isinstance(desktop, GuestDesktop):
        raise EvaluatorError(f"{part.func}: desktop {desktop.id} has no guest that OSWorld's evaluators could ask")
    files = {**context.outputs, **await _cloud_files(part, context)}
    async with worker_pool().worker() as worker, serve_desktop(desktop, worker.folder, files) as relay:
        try:
            answer = await worker.ask(_job(part, task), seconds)
        except EvaluatorError as error:
            if relay.failure is not None:
                raise relay.failure from error
            raise
    if relay.failure is not None:
        raise relay.failure
    printed = f"{answer.traceback}\n\nIt printed:\n{worker.said()}"
    if answer.value is None:
        raise UpstreamError(f"{part.func}: {plain(answer.error)}", printed)
    if not answer.value <= 1.0:
        raise EvaluatorError(f"{part.func} gave {answer.value:g}, which is not a score")
    if answer.error:
        note(printed)
    value = max(0.0, answer.value)  # a likeness of images can be negative
    why = f" ({plain(answer.error)})" if answer.error else ""
    found, expected = excerpts(answer.found, answer.expected)
    return Score(value=value, reason=f"{part.func}: {value:g}{why}", found=found, expected=expected)


def _job(part: Part, task: Task) -> Mapping[str, Any]:
    return {
        "task_id": task.id,
        "instruction": task.instruction,
        "config": msgspec.to_builtins(task.setup),
        "evaluator": msgspec.to_builtins(task.evaluator),
        "func": part.func,
        "result": _config(part.result),
        "expected": _config(part.expected),
        "options": msgspec.to_builtins(part.options),
    }


def _config(getter: Getter | None) -> Any:
    return msgspec.to_builtins(getter.config) if getter is not None else None


async def _cloud_files(part: Part, context: SetupContext) -> dict[str, bytes]:
    """What upstream would download, fetched by this machine: the sandbox has no network."""
    files = {}
    for getter in part.getters:
        if getter.type == "cloud_file":
            for url, name in _named_files(getter.config):
                files[name] = await _cloud_file(url, name, context)
    return files


def _named_files(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = [config.get(key) for key in ("path", "dest")]
    urls, names = found if config.get("multi") else ([each] for each in found)
    if not all(isinstance(each, list) and all(isinstance(one, str) for one in each) for each in (urls, names)):
        raise EvaluatorError("cloud_file: path and dest must be an address and a name, or with multi lists of them")
    return list(zip(urls or (), names or (), strict=False))


async def _cloud_file(url: str, name: str, context: SetupContext) -> bytes:
    try:
        with contextlib.suppress(OSError):  # where upstream itself would have put it
            return await asyncio.to_thread(_read_cached, context.cache, name)
        return await fetch(url, posixpath.basename(name), context)
    except (SetupError, OSError) as error:
        raise EvaluatorError(f"cloud_file: {error}") from error


def _read_cached(cache: Path, name: str) -> bytes:
    with os.fdopen(open_linked_below(cache, name), "rb") as file:
        return file.read()
