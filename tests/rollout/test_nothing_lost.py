"""Nothing is lost, nobody is wronged and nothing is left, whatever is killed or stopped, and whatever the clock says.

A short storm in every run of the tests; `make soak` has the long one (DESKROLL_SOAK: how many times as long).
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.rollout.storm import SOAK, Blow, Storm, Weather, check_run
from tests.waiting import wait_until

_LEFT_S = 15.0
"""How long what was killed last may take to be gone."""

REPLIES = """
latency: [0.02, 0.3]
replies:
  - turns:
      - {tools: [{name: computer, arguments: {action_type: CLICK, parameters: {x: 5, y: 5}}}]}
      - {tools: [{name: computer, arguments: {action_type: MOVE_TO, parameters: {x: 9, y: 9}}}]}
      - {tools: [{name: computer, arguments: {action_type: FAIL}}]}
"""
_LIMITS = {"retries": {"backoff": 0.05}, "watchdog": {"act_timeout": 20, "stalled_after": 10}}


def simulated() -> Weather:
    """Many episodes at a time on desktops that crash by themselves, with a model."""
    tasks = [
        {"id": f"t/{n} ü", "question": f"Is it possible? ({n})", "evaluator": {"func": "infeasible"}} for n in range(80)
    ]
    settings = {
        "env": "osworld", "provider": "sim", "num_vms": 12, "num_rollouts": 24, "workers": 3, **_LIMITS,
        "provider_options": {"step_crashes": 0.02, "boot_fails": 0.05, "reset_fails": 0.05, "dies_idle": 0.05},
        "env_options": {"observation_type": "screenshot", "screen_width": 320, "screen_height": 200},
    }  # fmt: skip
    blows = [Blow("worker"), Blow("worker", "stop", 3.0)] * 6
    blows += [Blow("coordinator")] * 4 + [Blow("zygote of workers")] * 2 + [Blow("clock", "step")] * 4
    return Weather(settings, tasks, blows, script=REPLIES)


def embedded() -> Weather:
    """Real desktops, on which an oracle types into a terminal what is judged afterwards."""
    look = "for n in $(seq 300); do test -s note && break; sleep 0.1; done; cat note"
    tasks = [
        {
            "id": f"write-{n}",
            "instruction": f"Write {n} into the file note, with the terminal.",
            "config": [
                {"type": "launch", "parameters": {"command": ["xterm"]}},
                {"type": "activate_window", "parameters": {"window_name": "xterm", "by_class": True}},
            ],
            "evaluator": {
                "func": "exact_match",
                "result": {"type": "vm_command_line", "command": look, "shell": True},
                "expected": {"type": "rule", "rules": {"expected": f"{n}\n"}},
            },
            "solution": [
                [{"action_type": "TYPING", "text": f"echo {n} > note"}, {"action_type": "PRESS", "key": "enter"}],
                "DONE",
            ],
        }
        for n in range(60)
    ]
    settings = {
        "env": "osworld", "provider": "local", "agent": "oracle", "num_vms": 3, "num_rollouts": 6, "workers": 2,
        **_LIMITS,
        "env_options": {
            "observation_type": "screenshot", "screen_width": 640, "screen_height": 400, "sleep_after_execution": 0.3,
        },
    }  # fmt: skip
    blows = [Blow(role) for role in ("keeper", "first", "deskroll-guest", "Xvfb", "openbox", "worker")] * 2
    blows += [Blow(role) for role in ("coordinator", "coordinator", "zygote of desktops", "zygote of workers", "bwrap")]
    blows += [Blow(role, "stop", 4.0) for role in ("worker", "keeper", "deskroll-guest", "Xvfb")]
    blows += [Blow("clock", "step"), Blow("clock", "step"), Blow("coordinator", "stop", 25.0)]
    return Weather(settings, tasks, blows, pace=(0.1, 0.8))


@contextlib.contextmanager
def no_process_left() -> Iterator[None]:
    """After the block, nothing that was started in it lives on."""
    yield

    def gone() -> bool:
        return not any(map(_is_of_ours, psutil.process_iter()))

    wait_until(gone, "every process that the runs started is gone", _LEFT_S)


def _is_of_ours(process: psutil.Process) -> bool:
    """Whether a process was started by a run of these tests."""
    try:
        ours = process.environ().get("DESKROLL_RUNTIME_DIR") == os.environ["DESKROLL_RUNTIME_DIR"]
        return ours and process.pid != os.getpid() and "deskroll" in " ".join(process.cmdline())
    except psutil.Error:
        return False


@pytest.mark.timeout(600 + 1800 * SOAK)
@pytest.mark.parametrize("weather", [simulated, embedded])
def test_nothing_is_lost_whatever_happens(
    tmp_path: Path, runtime_folder: Path, weather: type[Weather], record_property: pytest.RecordProperty
) -> None:
    made = weather()
    made.blows *= max(1, SOAK)
    storm = Storm(tmp_path, made, random.Random(len(made.blows)))
    with no_process_left(), storm.ended():
        storm.rage()
    record_property("struck", dict(storm.struck))
    print(f"{storm.struck.total()} blows, {storm.starts} starts, {len(storm.run_ids)} runs: {dict(storm.struck)}")
    assert storm.struck.total() == len(made.blows)
    for root in storm.roots:
        check_run(root, len(made.tasks), runtime_folder)
    assert list((runtime_folder / "runs").iterdir()) == []
