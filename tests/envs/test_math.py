"""The calculator: exact, and safe against whatever a model may write."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest

from deskroll.actions import Action, ToolCall
from deskroll.envs.math import LONGEST, MathEnv, evaluate
from deskroll.envs.tooled import LONGEST_RESULT
from deskroll.errors import ActionError
from deskroll.types import Task, ToolRequest

VALUES = {
    "6*7": 42, "2*(3+4)": 14, "1/3 + 1/6": Fraction(1, 2), "0.1+0.2": Fraction(3, 10), "7//2": 3, "-7//2": -4,
    "-7%3": 2, "2**10": 1024, "2^10": 1024, "2**-2": Fraction(1, 4), "-2**2": -4, "+5": 5, " 1 ": 1, "1_000": 1000,
    "0x10": 16, "1e3": 1000, ".5": Fraction(1, 2), "5.": 5, "0**0": 1, "1**999999": 1, "(-1)**1001": -1, "--1": 1,
    "(1+\n2.5)": Fraction(7, 2), "2**10000 // 2**9999": 2,
    "0.1000000000000000000001 * 10": Fraction(10**22 + 10, 10**22),  # a float would round it
    "1e-400 * 1e400": 1,  # a float would be 0
}  # fmt: skip

HOSTILE = {
    "9**9**9": "too large", "9**9**9**9": "too large", "2**99999999": "too large", "10**-99999": "too large",
    "1e999999999": "too large", "1e-999999999": "too large", "1e99999999999999999999": "too large",
    "(2**10000)**2": "too large", "2**9999 * 2**9999": "too large", "(1/7)**99999": "too large",
    "__import__('os').system('true')": "neither a number", "open('x')": "neither a number", "x": "neither a number",
    "(lambda: 1)()": "neither a number", "[1][0]": "neither a number", "'a'*9": "neither a number",
    "1 if 1 else 2": "neither a number", "1 < 2": "neither a number", "True": "neither a number", "1j": "neither",
    "f'{1}'": "neither a number", "1, 2": "neither a number", "~1": "neither a number", "1 << 9": "neither a number",
    "1 or 2": "neither a number", "1or 2": "neither a number", "1()": "neither a number",
    "x := 1": "no expression", "import os": "no expression", "1; 2": "no expression", "1 +": "no expression",
    "": "no expression", "1\0": "no expression", "²": "no expression", "1 2": "no expression",
    "(" * 900 + "1" + ")" * 900: "no expression", "-" * 1999 + "1": "nested too deeply",
    "1/0": "divides by zero", "1//0": "divides by zero", "1%0": "divides by zero", "0**-1": "divides by zero",
    "1/(1/3 - 1/3)": "divides by zero", "2**0.5": "only whole powers", "1" * (LONGEST + 1): "allowed: 2000",
}  # fmt: skip


@pytest.mark.parametrize("text", VALUES)
def test_values_are_exact(text: str) -> None:
    assert evaluate(text) == VALUES[text]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:30]))
def test_what_is_no_arithmetic_or_too_much_of_it_is_refused_at_once(text: str) -> None:
    began = time.monotonic()
    with pytest.raises(ActionError, match=HOSTILE[text]):
        evaluate(text)
    assert time.monotonic() - began < 5


def made() -> MathEnv:
    return MathEnv(Task(id="a", instruction="q", answer="42"), MathEnv.Settings())


def call(*expressions: str) -> Action:
    return ToolCall(name="calculator", arguments={"expressions": list(expressions)}, call_id="c")


@pytest.mark.parametrize(
    ("expressions", "result"),
    [
        (["6*7"], "6*7 = 42"),
        (["1/3", "2+2"], "1/3 = 1/3 (0.333333333333333)\n2+2 = 4"),
        ([], ""),
        (["9**9**9"], "error: ActionError: the number would be too large"),
        (["1/0"], "error: ActionError: '1/0' divides by zero"),
    ],
)
async def test_the_tool_answers_a_line_for_each(expressions: list[str], result: str) -> None:
    moment = await made().step([call(*expressions)])
    assert moment.observation.results == (result,)
    assert moment.stop is None


@pytest.mark.parametrize("text", ["2**13999", "1/2**13999", "10**4000/3", "10**-4000"])
async def test_large_numbers_are_written_in_full(text: str) -> None:
    (result,) = (await made().step([call(text)])).observation.results
    assert result.startswith(f"{text} = ")
    assert len(result) > 4000


async def test_a_long_result_is_cut() -> None:
    (result,) = (await made().step([call(*["2**13000"] * 50)])).observation.results
    assert len(result) <= LONGEST_RESULT + 10
    assert result.endswith("...")


@pytest.mark.parametrize(
    "arguments",
    ["", "{", "null", "[]", "{}", '{"expressions": "6*7"}', '{"expressions": [6]}', '{"expressions": null}',
     '{"expressions":' + "[" * 100_000, '{"x": ' + "[" * 100_000],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_the_agents_to_mend(arguments: str) -> None:
    with pytest.raises(ActionError, match=r"calculator: the arguments do not fit: .*; see the tool's parameters"):
        made().decode(ToolRequest(id="c", name="calculator", arguments=arguments))


def test_the_model_is_told_of_the_calculator() -> None:
    (tool,) = made().tools
    assert tool.name == "calculator"
    assert tool.parameters["required"] == ["expressions"]
    assert tool.parameters["properties"]["expressions"] == {
        "type": "array",
        "items": {"type": "string"},
        "maxItems": 50,
    }
