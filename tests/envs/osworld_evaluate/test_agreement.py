"""Native metrics judge as upstream's of the same name do, on a table of files; where those are installed."""

from __future__ import annotations

import base64
import json
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from deskroll.desktops.guest.client import GuestDesktop
from deskroll.envs.base import Ending
from deskroll.envs.osworld.evaluate import evaluate
from deskroll.envs.osworld.evaluate.native.metrics import METRICS
from deskroll.envs.osworld.evaluate.upstream import names
from deskroll.envs.osworld.evaluate.upstream.place import find_environment
from deskroll.errors import EvaluatorError
from deskroll.types import StopReason, Task
from tests.envs.osworld_evaluate.agreed import AGREED, ENDINGS, Made
from tests.envs.osworld_evaluate.making import judged

DONE = Ending(stop=StopReason.DONE)


@pytest.fixture(scope="module")
def made(upstream: None) -> Mapping[str, bytes]:
    """Documents by the libraries that upstream's metrics read them with."""
    folder = find_environment()
    assert folder is not None
    script = Path(__file__).with_name("generate.py")
    done = subprocess.run([folder / "bin" / "python", script], capture_output=True, check=True, timeout=120)
    return {name: base64.b64decode(data) for name, data in json.loads(done.stdout).items()}


async def getter(desktop: GuestDesktop, name: str, given: Any, made: Mapping[str, bytes]) -> dict[str, Any]:
    if isinstance(given, dict):
        return given
    data = made[given.name] if isinstance(given, Made) else given
    if data is not None:
        await desktop.write_file(f"/home/user/{name}", data)
    return {"type": "vm_file", "path": f"/home/user/{name}", "dest": name}


async def value(task: Task, desktop: GuestDesktop, whose: str) -> float | None:
    """None where it is not scored."""
    try:
        return (await evaluate(task, desktop, DONE, evaluators=whose)).value
    except EvaluatorError:
        return None


def _name(n: int) -> str:
    func, result, expected, options = AGREED[n]
    files = [each.name.partition(".")[0] for each in (result, expected) if isinstance(each, Made)]
    return "-".join([func, str(n), *files, *(f"not_{each.removeprefix('examine_')}" for each in options)])


@pytest.mark.parametrize("n", range(len(AGREED)), ids=_name)
async def test_native_metrics_judge_as_upstreams_do(n: int, desktop: GuestDesktop, made: Mapping[str, bytes]) -> None:
    """Where upstream's code breaks down, ours gives 0 or does not score either."""
    func, result, expected, options = AGREED[n]
    ending = ENDINGS.get(func, "txt")
    task = judged(
        func,
        await getter(desktop, f"out.{ending}", result, made),
        await getter(desktop, f"gold.{ending}", expected, made),
        options=options,
    )
    ours, theirs = await value(task, desktop, "native"), await value(task, desktop, "upstream")
    if theirs is None:
        assert not ours
    else:
        assert ours == pytest.approx(theirs, abs=1e-9)


def test_every_metric_that_both_have_is_in_the_table() -> None:
    counted = Counter(func for func, *_ in AGREED)
    assert {func: counted[func] for func in METRICS if func in names.METRICS and counted[func] < 6} == {}
