"""Judges parts by native getters and metrics.

Guarantees: no file that an agent leaves on its desktop keeps an attempt from being scored. What is there and cannot be
read, and a command whose program is gone, is a 0. Only what the task brings, a command that was cut off (by a signal,
by its time limit), a desktop that is dead, and this machine are others' failures. What was compared is shown as people
read it, and no file keeps that from being done: it is read within the same bounds as for judging.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from deskroll.desktops.base import Desktop
from deskroll.envs.osworld.evaluate.native import bounded
from deskroll.envs.osworld.evaluate.native.getters import GETTERS
from deskroll.envs.osworld.evaluate.native.metrics import METRICS
from deskroll.envs.osworld.evaluate.native.values import Config, File, Unreadable
from deskroll.envs.osworld.evaluate.parts import Getter, Part
from deskroll.errors import EvaluatorError, GuestError, plain
from deskroll.scoring.excerpt import excerpts
from deskroll.types import Score

_REFUSED = (400, 403, 404, 413, 500)
"""How a guest that is well answers what it cannot read or run."""
_BY_ENDING = {".docx": "docx_paragraphs", ".xlsx": "xlsx_cells", ".pptx": "pptx_texts", ".pdf": "pdf_text"}
"""Which reader says what is in a file, by the ending of its name."""


async def judge(part: Part, desktop: Desktop) -> Score:
    """The value of one part; `EvaluatorError` where it cannot be judged."""
    rules = _rules(part)
    if part.result is None:
        raise EvaluatorError("evaluator.result is missing or not an object")
    try:
        result = await get(part.result, desktop)
    except Unreadable as error:
        return await score(0.0, str(error), None, rules)
    if result is None:
        return await score(0.0, "the file that was to be judged is not there", None, rules)
    value = float(METRICS[part.func](result, rules))
    reason = f"{part.func}: {value:g}"
    if part.func == "exact_match":
        reason = f"the desktop's state {'is' if value else 'is not'} what was expected"
    return await score(value, reason, result, rules)


def _rules(part: Part) -> Config:
    if part.expected is None:
        raise EvaluatorError("evaluator.expected is missing or not an object")
    rules = part.expected.config.get("rules")
    if part.expected.type != "rule" or not isinstance(rules, Mapping):
        raise EvaluatorError(f"{part.func}: evaluator.expected must be of type rule, with rules")
    return rules


async def get(getter: Getter, desktop: Desktop) -> object:
    """What a getter finds; None: no such file. `Unreadable` where the agent's doing keeps it from being read."""
    try:
        return await GETTERS[getter.type](desktop, getter.config)
    except GuestError as error:  # the desktop is well: it is this question that it does not answer
        if error.status in _REFUSED:
            raise Unreadable(f"{getter.type}: {plain(str(error))}") from error
        raise EvaluatorError(f"{getter.type}: {error}") from error


async def score(value: float, reason: str, result: object, expected: object) -> Score:
    """With what was compared; documents are opened only where somebody will ask why they differ."""
    read = value < 1.0
    brief = excerpts(await _show(result, read=read), await _show(expected, read=read))
    return Score(value=value, reason=reason, found=brief[0], expected=brief[1])


async def _show(value: object, *, read: bool) -> object:
    """A getter's value; of documents what they say or, without `read`, their names and sizes; rules unwrapped."""
    if isinstance(value, Mapping) and set(value) == {"expected"}:
        return value["expected"]
    if not isinstance(value, File):
        return value
    named = f"{value.name}, {len(value.data)} bytes"
    reader = _BY_ENDING.get(posixpath.splitext(value.name)[1].lower())
    try:
        if reader is None:
            return value.data.decode()
        return await bounded.read(reader, value, {}) if read else named
    except (Unreadable, UnicodeDecodeError, EvaluatorError):
        return named
