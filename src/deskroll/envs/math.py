"""Questions with a calculator: exact arithmetic at once, symbolic mathematics in a process with limits.

Each expression of a call has a line of its own, its value or what is wrong with it: one that fails costs no other. The
symbolic ones of a call are computed one after another, within a time for them all: calls take turns, and no call keeps
the others waiting for long.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from deskroll.envs.calculator.call import CALL_CPU_SECONDS, symbolic
from deskroll.envs.calculator.exact import LONGEST, NotPlain, evaluate, shown
from deskroll.envs.limited import Budget
from deskroll.envs.tooled import ToolEnv, ToolFunction, ToolSettings
from deskroll.errors import ActionError, MissingDependency, plain
from deskroll.types import Record, Task

__all__ = ["LONGEST", "MathEnv", "evaluate"]

_DESCRIPTION = """\
Compute mathematical expressions exactly; each is answered by itself. Numbers (1000, not 1,000), + - * / // % ** and
brackets; sqrt, exp, log (natural; log(x, base), log10, log2), sin cos tan asin acos atan (radians; 30 deg for degrees),
pi, E, I, factorial, binomial, gcd, lcm, floor, ceil, abs, min, max, round, sum(k**2, k, 1, 10), product,
solve(x**2 = 4, x), solve([x + y = 3, x - y = 1], [x, y]), simplify, expand, factor, diff(f, x), integrate(f, x),
integrate(f, x, 0, 1), limit(f, x, 0), N(x, digits), Matrix([[1, 2], [3, 4]]), det, inv. \
Example: ["2*(3+4)", "1/3 + 1/6", "sqrt(8)", "integrate(x**2, x, 0, 3)"]."""


class Expressions(Record, frozen=True):
    """What to compute."""

    expressions: Annotated[list[str], msgspec.Meta(max_length=50)]


async def calculate(given: Expressions, cpu_seconds: float = CALL_CPU_SECONDS) -> str:
    """Each expression with its value, or with what is wrong with it, one a line; in so much time for them all."""
    budget, lines = Budget(cpu_seconds), list[str]()
    for text in given.expressions:
        if lines:
            await asyncio.sleep(0)  # others work in the same loop
        lines.append(await _answered(text, budget))
    return "\n".join(lines)


async def _answered(text: str, budget: Budget) -> str:
    try:
        return _line(text, shown(evaluate(text)))
    except NotPlain:
        pass
    except ActionError as error:
        return _line(text, error)
    try:
        return _line(text, await symbolic(text, budget))
    except ActionError as error:
        return _line(text, error)


def _line(text: str, value: str | ActionError) -> str:
    asked = text if text.isprintable() else plain(" ".join(text.split()), LONGEST)
    return f"{asked} = {value}" if isinstance(value, str) else f"{plain(asked, 80)}: error: {plain(str(value))}"


_CALCULATOR = ToolFunction("calculator", _DESCRIPTION, Expressions, calculate)


class MathEnv(ToolEnv):
    """A question and a calculator."""

    @staticmethod
    def prepare(tasks: Sequence[Task], settings: ToolSettings, folder: Path) -> str:
        """Refuse to begin without sympy, which the calculator's own process imports."""
        if importlib.util.find_spec("sympy") is None:
            raise MissingDependency("env 'math' needs the module 'sympy': pip install 'deskroll[math]'")
        return ""

    def functions(self) -> Mapping[str, ToolFunction]:
        """The calculator."""
        return {"calculator": _CALCULATOR}
