"""`deskroll events` as a person uses it: what is kept, what is going on, and only what is asked for."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.commands import Commands, Ended
from tests.test_cli_run import MATH, place, running, write_script
from tests.waiting import wait_until

__all__ = ["place"]


def events(deskroll: Commands, place: Path, env: dict[str, str], *args: str) -> Ended:
    ended = deskroll("events", *args, cwd=place, env=env)
    assert ended.code == 0, ended.err
    return ended


def test_what_happened_in_a_run(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    assert deskroll(*MATH, "--set", "run_id=one", cwd=place, env=env).code == 0
    everything = events(deskroll, place, env, "results/one").out.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}  run\.opened +one  epoch=1 pid=\d+", everything[0])
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}  run\.closed", everything[-1])
    sealed = events(deskroll, place, env, "results/one", "--kind", "episode.sealed").out.splitlines()
    assert sorted(line.split()[2] for line in sealed) == [f"eval/0/m{n}/0#1" for n in range(4)]
    assert all(line.endswith("score=1") for line in sealed)
    (place / "s.yaml").write_text('replies: [{turns: [{text: "41"}]}]')
    assert deskroll(*MATH, "--set", "run_id=two", cwd=place, env=env).code == 0
    wrong = events(deskroll, place, env, "results/two", "--kind", "episode.sealed").out.splitlines()
    assert [line.endswith("score=0") for line in wrong] == [True] * 4, "which is not nothing"
    attempts = events(deskroll, place, env, "results/one", "--kind", "attempt", "--episode", "eval/0/m2/0").out
    assert [line.split()[1] for line in attempts.splitlines()] == ["attempt.started", "attempt.ended"]
    stages = events(deskroll, place, env, "results/one", "--episode", "eval/0/m2/0#1", "--kind", "episode.stage").out
    found = re.findall(r"stage=(\w+)", stages)
    assert found == ["setup", "model", "act", "store", "model", "act", "store", "score", "store"]
    assert events(deskroll, place, env, "results/one", "--episode", "eval/0/m2/0#2").out == ""
    told = events(deskroll, place, env, "results/one", "--json", "--last", "3").out.splitlines()
    assert [json.loads(line)["kind"] for line in told][-1] == "run.closed"
    assert len(told) == 3


def test_what_happens_in_a_live_run(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    write_script(place, latency=1.0)
    with running(place, env, [*MATH, "--num-rollouts", "1"]) as live:
        wait_until(live.started, "it has begun")
        followed = events(deskroll, place, env, "results/one", "--follow", "--json")
    kinds = [json.loads(line)["kind"] for line in followed.out.splitlines()]
    assert kinds[-1] == "run.closed"
    assert kinds.count("episode.sealed") == 4
    over = deskroll("events", "results/one", "--follow", cwd=place, env=env)
    assert over.code == 2
    assert "run results/one is not live" in over.err


def test_it_is_left_by_ctrl_c_and_by_whoever_reads_it(place: Path, env: dict[str, str]) -> None:
    write_script(place, latency=3600)
    with running(place, env, MATH) as live:
        wait_until(live.begun, "it has begun")
        command = [sys.executable, "-m", "deskroll", "events", "--follow"]
        with subprocess.Popen(command, cwd=place, env=env, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert "." in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        live.signal(signal.SIGTERM)


def test_a_line_of_another_version_is_shown_as_it_is(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    assert deskroll(*MATH, "--set", "run_id=one", cwd=place, env=env).code == 0
    with (place / "results/one/events.jsonl").open("a") as file:
        file.write('{"kind":"moon.rose","at":1.0}\n')
    assert events(deskroll, place, env, "results/one").out.endswith('{"kind":"moon.rose","at":1.0}\n')
    assert "moon" not in events(deskroll, place, env, "results/one", "--kind", "job").out
