"""OSWorld's metrics, through deskroll, give what they give when they are called by themselves, on a table of files."""

from __future__ import annotations

import base64
import json
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from deskroll.desktops.guest.client import GuestDesktop
from deskroll.envs.base import Ending
from deskroll.envs.osworld.evaluate import evaluate
from deskroll.envs.osworld.evaluate.upstream import names
from deskroll.envs.osworld.evaluate.upstream.place import find_environment
from deskroll.errors import EvaluatorError
from deskroll.types import StopReason, Task
from tests.envs.osworld_evaluate.making import judged
from tests.envs.osworld_evaluate.upstream_cases import CASES, ENDINGS, Made

DONE = Ending(stop=StopReason.DONE)
Cases = Sequence[tuple[str, Any, Any, dict[str, Any]]]


def _run(script: str, given: str = "") -> Any:
    """What a script beside this one prints, run in OSWorld's environment."""
    folder = find_environment()
    assert folder is not None
    command = [folder / "bin" / "python", "-W", "ignore", Path(__file__).with_name(script)]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True, timeout=170)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def cases(upstream: None) -> Cases:
    """The table, with the documents that the libraries of OSWorld's metrics have made."""
    made = {name: base64.b64decode(data) for name, data in _run("generate.py").items()}

    def whole(given: Any) -> Any:
        return made[given.name] if isinstance(given, Made) else given

    return [(func, whole(result), whole(expected), options) for func, result, expected, options in CASES]


@pytest.fixture(scope="module")
def direct(cases: Cases) -> Sequence[float | None]:
    """What OSWorld's code gives by itself, all of it in one process; None where it breaks down."""
    jobs = [
        {"func": func, "result": _given(func, "out", result), "expected": _given(func, "gold", expected), "options": o}
        for func, result, expected, o in cases
    ]
    found: Sequence[float | None] = _run("direct.py", json.dumps(jobs))
    return found


def _given(func: str, name: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return {"name": f"{name}.{ENDINGS.get(func, 'txt')}", "base64": base64.b64encode(value).decode()}
    return None if value is None else value["rules"]


async def getter(desktop: GuestDesktop, name: str, given: Any) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return dict(given)
    if given is not None:
        await desktop.write_file(f"/home/user/{name}", given)
    return {"type": "vm_file", "path": f"/home/user/{name}", "dest": name}


async def value(task: Task, desktop: GuestDesktop) -> float | None:
    """None where it is not scored."""
    try:
        return (await evaluate(task, desktop, DONE, evaluators="upstream")).value
    except EvaluatorError:
        return None


def _name(n: int) -> str:
    func, result, expected, options = CASES[n]
    files = [each.name.partition(".")[0] for each in (result, expected) if isinstance(each, Made)]
    return "-".join([func, str(n), *files, *(f"not_{each.removeprefix('examine_')}" for each in options)])


@pytest.mark.parametrize("n", range(len(CASES)), ids=_name)
async def test_the_sandbox_changes_no_value(
    n: int, desktop: GuestDesktop, cases: Cases, direct: Sequence[float | None]
) -> None:
    """Where the code breaks down by itself, a broken file is a 0 and all else is not scored."""
    func, result, expected, options = cases[n]
    ending = ENDINGS.get(func, "txt")
    task = judged(
        func,
        await getter(desktop, f"out.{ending}", result),
        await getter(desktop, f"gold.{ending}", expected),
        options=options,
    )
    found = await value(task, desktop)
    if direct[n] is None:
        assert not found
    else:
        assert found == pytest.approx(max(0.0, direct[n]), abs=1e-9)


def test_the_table_has_metrics_of_every_kind() -> None:
    counted = Counter(func for func, *_ in CASES)
    assert set(counted) <= names.METRICS
    assert len(counted) == 25
    assert min(counted.values()) >= 6
