"""One part judged by a function of the task's own.

Guarantees: it takes no more time and memory than its limits. What it raises, what takes more, and what is no number
from 0 to 1, is not scored, unless the function gets on with the expected file in the place of the agent's: then that
file is at fault, and the part is 0.
"""

from __future__ import annotations

import ast
import base64
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from deskroll.desktops.base import Desktop
from deskroll.envs.interpreter import Limits, run_once
from deskroll.envs.osworld.evaluate.native import engine
from deskroll.envs.osworld.evaluate.native.values import File, Unreadable
from deskroll.envs.osworld.evaluate.own import inside
from deskroll.envs.osworld.evaluate.own.named import Function
from deskroll.envs.osworld.evaluate.parts import Part
from deskroll.errors import EvaluatorError, MissingDependency, SetupError, plain
from deskroll.types import Record, Score

LIMITS = Limits(timeout=60.0, memory_mb=2048, disk_mb=512, output_chars=60_000)
"""What one call may use."""
_SLACK = 1e-9
"""By how much a mean may be more than 1, as numbers are rounded."""


class Answer(Record, frozen=True):
    """What came of a call."""

    value: float | None = None
    reason: str = ""
    error: str = ""
    trace: str = ""


async def judge(
    part: Part, desktop: Desktop, folder: Path | None, *, note: Callable[[str], object] = lambda text: None
) -> Score:
    """The value of one part; `EvaluatorError` where there is none. `note` gets the traceback behind a 0."""
    if part.result is None:
        raise EvaluatorError("evaluator.result is missing or not an object")
    given: dict[str, object] = {}
    try:
        given["result"] = await engine.get(part.result, desktop)
        if part.expected is not None:
            given["expected"] = await engine.get(part.expected, desktop)
    except Unreadable as error:
        return Score(value=0.0, reason=str(error))
    if part.expected is not None and given["expected"] is None:  # no way to remain unscored, as for all others
        return Score(value=0.0, reason="the file that was to be compared with is not there")
    answer = await _call(part, folder, given)
    if answer.value is None:
        if not await _is_at_fault(part, folder, given):
            broken = EvaluatorError(f"{part.func}: {plain(answer.error)}")
            broken.trace = answer.trace
            raise broken
        note(answer.trace)
        answer = Answer(value=0.0, reason=f"what was found cannot be judged: {answer.error}")
    value = _in_range(part.func, answer.value or 0.0)
    reason = plain(answer.reason, keep="\n") or f"{part.func}: {value:g}"
    return await engine.score(value, reason, given["result"], given.get("expected"))


def _in_range(function: str, value: float) -> float:
    """What a function gave as a score: less than nothing is nothing; more than 1 is a mistake."""
    if not value <= 1.0 + _SLACK:
        raise EvaluatorError(f"{function} gave {value:g}, which is not a score: one is from 0 to 1")
    return min(max(value, 0.0), 1.0)


async def _is_at_fault(part: Part, folder: Path | None, given: dict[str, object]) -> bool:
    """Whether it was the agent's file that the function stumbled over: it gets on with the expected one."""
    expected = given.get("expected")
    if not isinstance(given["result"], File) or not isinstance(expected, File):
        return False
    return (await _call(part, folder, {"result": expected, "expected": expected})).value is not None


async def _call(part: Part, folder: Path | None, given: dict[str, object]) -> Answer:
    function = Function.parse(part.func)
    job = {
        "file": function.file,
        "function": function.name,
        "source": function.source(folder),
        "given": {name: _as_json(value) for name, value in given.items()},
        "options": msgspec.to_builtins(part.options),
    }
    seal = secrets.token_hex(16)
    program = f"{Path(inside.__file__).read_text()}\n\nseal_answer(given, {seal!r})\n"
    # As a literal of its own, so that no program that is compiled is as large as a file.
    snippets = (f"given = {json.dumps(json.dumps(job))}", program)
    try:
        ended = await run_once(LIMITS, snippets)
    except (SetupError, MissingDependency) as error:
        raise EvaluatorError(f"{part.func}: {error}") from error
    return Answer(error=ended.note) if ended.note else _read_answer(ended.shown, seal)


def _as_json(value: object) -> dict[str, Any]:
    if isinstance(value, File):
        return {"file": value.name, "base64": base64.b64encode(value.data).decode()}
    return {"value": msgspec.to_builtins(value)}


def _read_answer(shown: str, seal: str) -> Answer:
    """The answer, when it is one of this very call."""
    try:
        text = ast.literal_eval(shown.strip())
        if isinstance(text, str) and text.startswith(seal):
            return msgspec.json.decode(text.removeprefix(seal), type=Answer)
    except (ValueError, SyntaxError, MemoryError, RecursionError, msgspec.MsgspecError):
        pass  # no answer of ours looks so
    return Answer(error=f"it broke its sandbox's answer; it showed: {plain(shown)}")
