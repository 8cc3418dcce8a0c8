"""The calculator: exact, symbolic, and safe against whatever a model may write."""

from __future__ import annotations

import asyncio
import math
import re
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import psutil
import pytest

from deskroll.actions import Action, ToolCall
from deskroll.envs.math import LONGEST, Expressions, MathEnv, calculate, evaluate
from deskroll.envs.tooled import LONGEST_RESULT
from deskroll.errors import ActionError, SetupError
from deskroll.types import Task, ToolRequest

ROOT = Path(__file__).parent.parent.parent

PLAIN = {
    "6*7": 42, "2*(3+4)": 14, "1/3 + 1/6": Fraction(1, 2), "0.1+0.2": Fraction(3, 10), "7//2": 3, "-7//2": -4,
    "-7%3": 2, "2**10": 1024, "2^10": 1024, "2**-2": Fraction(1, 4), "-2**2": -4, "+5": 5, " 1 ": 1, "1_000": 1000,
    "0x10": 16, "1e3": 1000, ".5": Fraction(1, 2), "5.": 5, "0**0": 1, "1**999999": 1, "(-1)**1001": -1, "--1": 1,
    "(1+\n2.5)": Fraction(7, 2), "2**10000 // 2**9999": 2,
    "0.1000000000000000000001 * 10": Fraction(10**22 + 10, 10**22),  # a float would round it
    "1e-400 * 1e400": 1,  # a float would be 0
}  # fmt: skip

NOT_PLAIN = {
    "9**9**9": "too large", "9**9**9**9": "too large", "2**99999999": "too large", "10**-99999": "too large",
    "1e999999999": "too large", "1e-999999999": "too large", "1e99999999999999999999": "too large",
    "(2**10000)**2": "too large", "2**9999 * 2**9999": "too large", "(1/7)**99999": "too large",
    "open('x')": "neither a number", "x": "neither a number", "True": "neither a number", "1j": "neither",
    "1 or 2": "neither a number", "1()": "neither a number", "import os": "not an expression",
    "1 +": "not an expression", "": "not an expression", "1\0": "not an expression", "²": "not an expression",
    "(" * 900 + "1" + ")" * 900: "not an expression", "-" * 1999 + "1": "nested too deeply",
    "1/0": "divides by zero", "1//0": "divides by zero", "1%0": "divides by zero", "0**-1": "divides by zero",
    "1/(1/3 - 1/3)": "divides by zero", "2**0.5": "only whole powers", "1" * (LONGEST + 1): "allowed: 2000",
}  # fmt: skip

SYMBOLIC = {
    "sqrt(8)": "2*sqrt(2) (2.82842712474619)", "2**0.5": "sqrt(2) (1.41421356237310)", "√16": "4", "√(2)*√2": "2",
    "2×3÷4": "3/2 (1.5)", "pi": "pi (3.14159265358979)", "sin(30 deg)": "1/2 (0.5)", "sin(30deg)": "1/2 (0.5)",
    "sin(deg(30))": "1/2 (0.5)", "cos(60°)": "1/2 (0.5)", "sin(pi/6)": "1/2 (0.5)",
    "sin(1)": "sin(1) (0.841470984807897)",
    "asin(1/2)": "pi/6 (0.523598775598299)", "atan2(1, 1)": "pi/4 (0.785398163397448)", "degrees(pi)": "180",
    "log(E)": "1", "ln(e^2)": "2", "log10(1000)": "3", "log2(8)": "3", "log(8, 4)": "3/2 (1.5)", "exp(0)": "1",
    "exp(1)": "E (2.71828182845905)", "factorial(10)": "3628800", "5!": "120", "binomial(52, 5)": "2598960",
    "perm(5, 2)": "20", "gcd(12, 18, 24)": "6", "lcm(4, 6)": "12", "floor(7/2)": "3", "ceil(pi)": "4", "abs(-3)": "3",
    "min(1, 2, -5)": "-5", "max([3, 9])": "9", "round(pi, 2)": "157/50 (3.14)", "round(2.5)": "2",
    "round(1234, -2)": "1200", "sum(k^2, k, 1, 10)": "385", "sum(k**2, (k, 1, 10))": "385", "sum([1, 2, 3])": "6",
    "sum(range(1, 101))": "5050", "sum(k, k, 1, 10**12)": "500000000000500000000000", "product(k, k, 1, 5)": "120",
    "sum(1/2**k, k, 1, oo)": "1", "solve(x^2 = 4, x)": "[-2, 2]", "solve(2*x + 3 = 7)": "[2]", "sqrt(-4)": "2*I",
    "solve(x**2 == 2, x)": "[-sqrt(2), sqrt(2)] ([-1.41421356237310, 1.41421356237310])",
    "solve([x + y = 3, x - y = 1], [x, y])": "[x = 2, y = 1]", "solve(x^2 + 1 = 0, x)": "[-I, I]",
    "solve(x^2 < 4, x)": "(-2 < x) & (x < 2)", "simplify(sin(x)^2 + cos(x)^2)": "1", "factor(360)": "2**3*3**2*5",
    "expand((x+1)^3)": "x**3 + 3*x**2 + 3*x + 1", "factor(x^2 - 1)": "(x - 1)*(x + 1)", "diff(x^3, x)": "3*x**2",
    "diff(sin(x), x, 2)": "-sin(x)", "integrate(x^2, x, 0, 3)": "9", "integrate(1/x, x)": "log(x)",
    "integrate(exp(-x^2), (x, -oo, oo))": "sqrt(pi) (1.77245385090552)", "limit(sin(x)/x, x, 0)": "1",
    "limit((1 + 1/n)^n, n, oo)": "E (2.71828182845905)", "limit(1/x, x, 0, right)": "oo", "(1 + I)^2": "2*I",
    "Matrix([[1, 2], [3, 4]]) * Matrix([[1], [1]])": "Matrix([[3], [7]])", "det([[1, 2], [3, 4]])": "-2",
    "inv([[1, 2], [3, 4]])": "Matrix([[-2, 1], [3/2, -1/2]])", "eigenvals([[2, 0], [0, 3]])": "[2, 3]",
    "pow(7, 10**20, 11)": "1", "N(pi, 30)": "3.14159265358979323846264338328", "sqrt(2) > 1.4": "True",
    "subs(x^2 + 1, x, 3)": "10", "isprime(97)": "True", "divisors(12)": "[1, 2, 3, 4, 6, 12]", "E^(I*pi)": "-1",
}  # fmt: skip

COMMAS = {  # none of these can be a number with commas
    "sum(range(1,101))": "5050", "binomial(101,100)": "101", "sum(k,k,1,100)": "5050", "[100,200]": "[100, 200]",
    "integrate(x,x,0,100)": "5000", "max(1, 500)": "500", "max(1,50)": "50", "mod(7,100)": "7",
}  # fmt: skip

BEHIND = {  # what stands behind its operand
    "sqrt(4)!": "2", "((2+1))!": "6", "(3!)!": "720", "5!!": "15", "2^3!": "64", "3²!": "362880", "-3²": "-9",
    "n!": "factorial(n)", "4! = 24": "True", "4! = 25": "False", "4 != 25": "True", "4≠24": "True", "5!==120": "True",
    "1/30°": "6/pi (1.90985931710274)", "1/30 deg": "6/pi (1.90985931710274)", "sin(30°)²": "1/4 (0.25)",
    "1e1!": "3628800",
}  # fmt: skip

HIDDEN = {  # values that do not look like what they are
    "cos(1)^2+sin(1)^2-1": "0", "(sqrt(2)+sqrt(3))^2-5-2*sqrt(6)": "0", "cos(1)^2+sin(1)^2 = 1": "True",
    "sqrt(2+sqrt(3))-sqrt(6)/2-sqrt(2)/2": "0", "N(sqrt(10^400+1)-10^200)": "5.00000000000000e-201",
    "N(solve(x^3-3*x+1=0,x), 5)": "[0.34730, 1.5321, -1.8794]",
    "exp(pi*sqrt(163))-262537412640768744": "-262537412640768744 + exp(sqrt(163)*pi) (-7.49927402801814e-13)",
    "N(1 + I*sqrt(2), 5)": "1.0 + 1.4142*I", "N(pi, 5)*sqrt(2)": "3.1416*sqrt(2) (4.4429)",
    "round(N(2.5))": "2", "round(N(3.5))": "4", "N(integrate(x^x,x,0,1))": "0.783430510712134",
    "integrate(x^x,x,1,2)": "Integral(x**x, (x, 1, 2)) (2.05044623453473)",
}  # fmt: skip

SOLVED = {
    "solve(x=x,x)": "every x for which it is defined is a solution",
    "solve(x=x)": "every value for which it is defined is a solution",
    "solve(sin(x)^2+cos(x)^2=1,x)": "every x for which it is defined is a solution",
    "solve([x=x, y=1],[x,y])": "[y = 1]",
    "solve(sin(x)=0,x)": "[0, pi] ([0, 3.14159265358979]); not all: each plus any multiple of 2*pi is one, too",
    "solve(tan(x)=1)": "[pi/4] ([0.785398163397448]); not all: each plus any multiple of pi is one, too",
    "solve(x*sin(x)=0,x)": "[0, pi] ([0, 3.14159265358979]); not all: there may be more",
    "N(solve(sin(x)=0,x), 3)": "[0, 3.14]; not all: each plus any multiple of 2*pi is one, too",
    "sum(k,k,10,1)": "0", "product(k,k,10,1)": "1", "product(range(1,5))": "24", "max(range(3))": "2",
    "sum(k,k,1,n)": "n**2/2 + n/2",
}  # fmt: skip

REFUSED = {
    "9^9^9.5": "would be too large", "factorial(10**9)": "from 0 to 1400", "sqrt(2)**99999999": "would be too large",
    "binomial(10**9, 5*10**8)": "would be too large", "isprime(10**300)": r"from 0 to 1e\+200",
    "product(k, k, 1, 100000)": "number is too large", "gamma(100000)": "number is too large",
    "1e9999*x": "number is too large", "factorial(-1)": "from 0 to 1400",
    "__import__('os').system('true')": "nothing that a calculator knows", "open('/etc/passwd')": "no function 'open'",
    "exec('1')": "no function 'exec'", "getattr(x, 'a')": "no function 'getattr'", "sympify('1')": "no function",
    "x.__class__": "nothing that a calculator knows", "(1).real": "nothing that", "'a'*9": "nothing that",
    "[x for x in range(3)]": "nothing that", "sum(k for k in range(9))": "nothing that",
    "(lambda: 1)()": "nothing that",
    "f'{1}'": "nothing that", "{1: 2}": "nothing that", "x[0]": "nothing that", "1 if x else 2": "nothing that",
    "x and y": "nothing that", "not x": "nothing that", "True": "nothing that", "2j": "nothing that",
    "~x": "nothing that",
    "x << 9": "no LShift", "1 < x < 2": "nothing that", "sin(*[1])": "nothing that",
    "sin(x, **{})": "no function 'sin', or",
    "__builtins__": "stands alone", "sin": "stands alone", "foo(3)": "no function 'foo'",
    "sin(1, 2, 3)": "exactly 1 arg",
    "(x := 1)": "nothing that", "x := 1": "not an expression", "import os": "not an expression",
    "1; 2": "not an expression", "2x": r"write 2\*x for 2x", "": "not an expression", "x\0": "not an expression",
    "(" * 900 + "x" + ")" * 900: "not an expression",
    "-" * 1900 + "x": "nested too deeply", "sin(" * 180 + "x" + ")" * 180 + "+'a'": "nothing that",
    "x" * (LONGEST + 1): "allowed: 2000", "sin(1)/0": "divides by zero", "1/(sqrt(2)-sqrt(2))": "divides by zero",
    "tan(90°)": "not defined", "limit(1/x, x, 0)": "not defined", "solve(x = x + 1, x)": "no solution",
    "solve(3, 3)": "takes equations", "range(10)": "has no value", "round(x)": "only a real number",
    "Matrix([[1, 2], [3]])": "mismatched dimensions", "[1, 2] + [3]": "lists cannot be combined",
    "1,000": "write 1000 for 1,000", "1,000 + 1": "write 1000 for", "max(1,000, 500)": "write 1000 for",
    "sqrt(1,000)": "write 1000 for", "2*1,050,300": "write 1050300 for", "1,234": "several values", "(1, 2)": "several",
    "max(1,500, 300)": "1,500 can be one number or two; write 1500, or 1, 500", "sqrt(1,234)": "write 1234, or",
    "gcd(12,180)": "write 12180, or 12, 180", "sum([1,234, 5])": "write 1234, or 1, 234", "pow(7,100,13)": "write 7100",
    "sqrt(16, 4)": "sqrt takes exactly 1 argument, and was given 2", "simplify(x, 1, 2)": "takes exactly 1 arg",
    "perm(5)": "exactly 2 arguments, and was given 1", "expand(x, 1)": "exactly 1 arg", "atan2(1)": "exactly 2 arg",
    "integrate(x*y, x, y)": r"1, 2 or 4 arguments, and was given 3; write .*integrate\(integrate\(f, x\), y\)",
    "integrate(x, x, 0)": "1, 2 or 4 arguments", "integrate(x, (x, 0))": r"written \(x, 0, 1\)",
    "integrate(x^x, x)": "no closed form was found", "sum(k, k, 1, 2.5)": "bounds must be whole numbers",
    "log(2, 0)": "neither 0 nor 1", "log(2, 1)": "neither 0 nor 1", "divisors(0)": "from 1 to",
    "max([])": "at least one number",
    "gcd([])": "at least one number", "sin([1])": "sin takes no list", "solve(1 = 2, x)": "no solution",
    "product(range(1, 100000))": "would be too large", "binomial(10**5, 5*10**4)": "would be too large",
    "4!=25": "'!=' can be a factorial or 'is not'", "(2+1)!=6": "can be a factorial", "n!=6": "can be a factorial",
    "1/(cos(1)^2+sin(1)^2-1)": "divides by zero", "(cos(1)^2+sin(1)^2-1)^-1": "divides by zero",
    "5 % (cos(1)^2+sin(1)^2-1)": "divides by zero", "cot(cos(1)^2+sin(1)^2-1)": "not defined",
    "1/(atan(1)+atan(2)+atan(3)-pi)": "its value cannot be found", "solve(x = x, x) + 1": "cannot be combined",
}  # fmt: skip

ENDLESS = ("integrate(sin(x**x)*exp(x**x)/log(x+sin(x)), x)", "sum(k**k, k, 1, 100000)", "expand((x+y+z)**40000)")


@pytest.mark.parametrize("text", PLAIN)
def test_plain_values_are_exact(text: str) -> None:
    assert evaluate(text) == PLAIN[text]


@pytest.mark.parametrize("text", NOT_PLAIN, ids=lambda text: repr(text[:30]))
def test_what_is_no_plain_arithmetic_or_too_much_of_it_is_refused_at_once(text: str) -> None:
    began = time.monotonic()
    with pytest.raises(ActionError, match=NOT_PLAIN[text]):
        evaluate(text)
    assert time.monotonic() - began < 5


def made() -> MathEnv:
    return MathEnv(Task(id="a", instruction="q", answer="42"), MathEnv.Settings())


def call(*expressions: str) -> Action:
    return ToolCall(name="calculator", arguments={"expressions": list(expressions)}, call_id="c")


async def told(*expressions: str) -> str:
    (result,) = (await made().step([call(*expressions)])).observation.results
    return result


@pytest.mark.parametrize(("text", "value"), [*(SYMBOLIC | COMMAS | BEHIND | HIDDEN | SOLVED).items()])
async def test_symbolic_values(text: str, value: str) -> None:
    assert await told(text) == f"{text} = {value}"


async def test_a_number_of_three_thousand_digits_is_computed() -> None:
    assert await told("binomial(10000, 5000)") == f"binomial(10000, 5000) = {math.comb(10000, 5000)}"


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: repr(text[:30]))
async def test_what_the_calculator_does_not_do_is_an_error_for_that_expression(text: str) -> None:
    first, second = (await told(text, "6*7")).splitlines()
    assert ": error: " in first
    assert re.search(REFUSED[text], first)
    assert second == "6*7 = 42"


async def test_what_never_ends_is_ended_and_the_others_have_their_values() -> None:
    lines = (await told("sqrt(4)", *ENDLESS, "6*7")).splitlines()
    assert (lines[0], lines[-1]) == ("sqrt(4) = 2", "6*7 = 42")
    assert all(": error: it " in line for line in lines[1:-1])
    assert "it took more than 5 s of CPU time" in lines[1]
    assert "it took more than 512 MiB of memory" in lines[3]


async def test_a_call_has_a_time_for_all_of_its_expressions() -> None:
    given = Expressions(expressions=["sqrt(4)", ENDLESS[0], "sqrt(8)", "6*7"])
    lines = (await calculate(given, cpu_seconds=1)).splitlines()
    assert (lines[0], lines[3]) == ("sqrt(4) = 2", "6*7 = 42")
    spent = "error: not computed: the 1 s of CPU time of this call were used up; ask for fewer expressions"
    assert [spent in line for line in lines[1:3]] == [True, True], lines


async def test_calls_take_turns() -> None:
    hog = asyncio.create_task(told(*[ENDLESS[0]] * 50))
    try:
        results = await asyncio.gather(*(told(f"sqrt({n * n})") for n in range(10)))
        assert results == [f"sqrt({n * n}) = {n}" for n in range(10)]
        assert not hog.done()
    finally:
        hog.cancel()
        await asyncio.gather(hog, return_exceptions=True)


async def test_what_the_machine_does_to_the_calculator_is_not_told_to_the_model() -> None:
    await told("sqrt(4)")
    step = asyncio.create_task(made().step([call(ENDLESS[0])]))
    while not step.done():
        for child in psutil.Process().children():
            if "limited.server" in " ".join(_words(child)):
                child.kill()
        await asyncio.sleep(0.05)
    with pytest.raises(SetupError, match="cannot be run within limits on this machine"):
        await step
    assert await told("sqrt(4)") == "sqrt(4) = 2"


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it is gone
        return []


@pytest.mark.parametrize(
    ("expressions", "result"),
    [
        (["6*7"], "6*7 = 42"),
        (["1/3", "2+2"], "1/3 = 1/3 (0.333333333333333)\n2+2 = 4"),
        ([], ""),
        (["(1 +\n 2)"], "(1 + 2) = 3"),
        (["9**9**9", "2+2"], "9**9**9: error: the number would be too large\n2+2 = 4"),
        (["1/0", "sqrt(4)"], "1/0: error: it divides by zero\nsqrt(4) = 2"),
    ],
)
async def test_the_tool_answers_a_line_for_each(expressions: list[str], result: str) -> None:
    moment = await made().step([call(*expressions)])
    assert moment.observation.results == (result,)
    assert moment.stop is None


@pytest.mark.parametrize("text", ["2**13999", "1/2**13999", "10**4000/3", "10**-4000"])
async def test_large_numbers_are_written_in_full(text: str) -> None:
    result = await told(text)
    assert result.startswith(f"{text} = ")
    assert len(result) > 4000


async def test_a_long_result_is_cut() -> None:
    result = await told(*["2**13000"] * 50)
    assert len(result) <= LONGEST_RESULT + 10
    assert result.endswith("...")


async def test_many_callers_at_once() -> None:
    results = await asyncio.gather(*(told(f"sqrt({n * n})", f"{n}+1") for n in range(60)))
    assert results == [f"sqrt({n * n}) = {n}\n{n}+1 = {n + 1}" for n in range(60)]


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


def test_without_sympy_a_run_does_not_begin_and_says_what_to_install() -> None:
    code = """
import sys
from pathlib import Path
from deskroll.envs.math import MathEnv
MathEnv.prepare([], MathEnv.Settings(), Path())
assert "sympy" not in sys.modules
sys.modules["sympy"] = None  # as Python has it where a module cannot be imported
try:
    MathEnv.prepare([], MathEnv.Settings(), Path())
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60, capture_output=True, text=True
    )
    assert done.stdout == "MissingDependency env 'math' needs the module 'sympy': pip install 'deskroll[math]'\n"
