"""The way to sympy: one expression, in a process of its own with limits. The caller never imports sympy."""

from __future__ import annotations

from deskroll.envs.limited import Bounds, Budget, BudgetSpent, FunctionFailed, LimitedError, limited
from deskroll.errors import ActionError

_FAR = "deskroll.envs.calculator.symbolic"
LIMITS = Bounds(seconds=30.0, cpu_seconds=5.0, memory_bytes=512 * 2**20, result_bytes=64 * 2**10)
CALL_CPU_SECONDS = 20.0
"""CPU time of all the expressions of one call together."""


async def symbolic(text: str, budget: Budget) -> str:
    """The value of an expression, as text; `ActionError` says why there is none."""
    try:
        said = await limited(compute, text.encode(errors="replace"), LIMITS, preload=[_FAR], budget=budget)
    except BudgetSpent:
        spent = f"not computed: the {budget.cpu_seconds:g} s of CPU time of this call were used up"
        raise ActionError(f"{spent}; ask for fewer expressions, or simpler ones") from None
    except FunctionFailed as error:
        raise ActionError(f"it cannot be computed: {error}") from None
    except LimitedError as error:
        raise ActionError(str(error)) from None
    value = said[1:].decode()
    if said[:1] != b"=":
        raise ActionError(value)
    return value


def compute(given: bytes) -> bytes:
    """Run there: `=` and the value, or `!` and what is wrong."""
    # Imported here because the caller shall never import sympy; where this runs, it is there already.
    from deskroll.envs.calculator.symbolic import Refused, value_of  # noqa: PLC0415

    try:
        return b"=" + value_of(given.decode()).encode()
    except Refused as error:
        return b"!" + str(error).encode()
