"""`deskroll serve` as a person uses it: started, looked at, stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.commands import Commands, clean_environment
from tests.service.serving import Served, task
from tests.waiting import wait_until


def test_what_is_wrong_is_said_in_a_line(deskroll: Commands, tmp_path: Path, env: dict[str, str]) -> None:
    for args, says in (
        ((), "source is empty"),
        (("nowhere.yaml",), "nowhere.yaml"),
        (("--set", "source=inbox"), "there is no folder"),
        (("--set", "api_key=x"), "other users see command lines"),
    ):
        ended = deskroll("serve", *args, cwd=tmp_path, env=env)
        assert ended.code == 2
        assert says in ended.err
        assert "Traceback" not in ended.err
    assert "deskroll serve service.yaml" in deskroll("serve", "--help", cwd=tmp_path, env=env).out


def test_a_start_that_fails_leaves_nothing(deskroll: Commands, tmp_path: Path, env: dict[str, str]) -> None:
    served = Served(tmp_path)
    served.drop("one.jsonl", [task("a")])
    for setting, says in (
        ("model.name=scripted:nosuch.yaml", "nosuch.yaml"),
        ("model={name: m, base_url: 'http://127.0.0.1:9/v1'}", "127.0.0.1:9"),
        ("source=nowhere", "there is no folder"),
    ):
        ended = deskroll("serve", "service.yaml", "--set", setting, cwd=tmp_path, env=env)
        assert ended.code == 2, ended.err
        assert says in ended.err
        assert "Traceback" not in ended.err
        assert not (tmp_path / "results").exists()


def test_the_status_of_one_that_is_stopped(deskroll: Commands, tmp_path: Path, env: dict[str, str]) -> None:
    served = Served(tmp_path)
    served.drop("odd.json", "[")
    os.utime(served.inbox / "odd.json", (1, 1))  # it is the first
    served.drop("one.jsonl", [task("a")])
    assert deskroll("serve", "service.yaml", "--set", "max_batches=1", cwd=tmp_path, env=env).code == 0
    ended = deskroll("status", "results/service", cwd=tmp_path, env=env)
    assert ended.code == 2
    assert "the service in results/service is stopped: 1 batch done, 1 bad; start it again with" in ended.err
    assert "report results/service" in ended.err
    as_json = deskroll("status", "results/service", "--json", cwd=tmp_path, env=env)
    assert "is stopped: 1 batch done" in json.loads(as_json.out)["error"]


def test_a_name_that_breaks_lines_breaks_none(deskroll: Commands, tmp_path: Path, env: dict[str, str]) -> None:
    served = Served(tmp_path)
    served.drop("odd\nZ.json", "[")
    os.utime(served.inbox / "odd\nZ.json", (1, 1))  # it is the first
    served.drop("one\nY.jsonl", [task("a")])
    ended = deskroll("serve", "service.yaml", "--set", "max_batches=1", cwd=tmp_path, env=env)
    assert ended.code == 0, ended.err
    assert "batch odd Z.json is bad" in ended.err
    assert "batch one Y.jsonl: 1 task, round 0" in ended.err
    assert "batch one Y.jsonl: done after" in ended.err


def test_from_start_to_second_ctrl_c(tmp_path: Path, runtime_folder: Path) -> None:
    served = Served(tmp_path)
    (tmp_path / "answers.yaml").write_text("latency: 1000\nreplies:\n  - turns: [{text: '42'}]\n")
    served.drop("one.jsonl", [task("a"), task("b")])
    served.drop("odd.json", "[")
    command = [sys.executable, "-m", "deskroll", "serve", "service.yaml", "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, stdout=pipe, stderr=pipe, text=True, env=dict(os.environ)) as process:
        try:
            wait_until(lambda: served.count("bad") and served.count("taken"), "both were seen")
            status = [sys.executable, "-m", "deskroll", "status", str(served.root)]

            def asked(*args: str) -> str:
                env = {**os.environ, "COLUMNS": "300"}  # so that no line is folded
                return subprocess.run([*status, *args], capture_output=True, text=True, check=False, env=env).stdout

            wait_until(lambda: json.loads(asked("--json"))["in_flight"] == 2, "it runs")
            shown = asked()
            assert "0 done, 1 running, 0 waiting, 1 bad" in shown
            assert "one.jsonl: 2 of 2 tasks left" in shown
            assert "odd.json:1: it is not valid JSON" in shown
            process.send_signal(signal.SIGINT)
            wait_until(lambda: json.loads(asked("--json"))["service"]["draining"], "it drains")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 130, err
    kinds = [json.loads(line)["kind"] for line in out.splitlines()]
    assert kinds[0] == "run.opened"
    assert kinds[-1] == "run.closed"
    assert sorted(kinds[1:-1]) == ["batch.bad", "batch.taken"]
    assert "1 batch with 2 tasks left will finish" in err
    assert "stopping now" in err
    assert "0 batches done, 1 bad, 1 for a restart to go on with" in err
    assert "Traceback" not in err


def test_setup_env_is_the_one_command() -> None:
    script = Path(__file__).parents[1] / "scripts" / "setup_env.sh"
    assert os.access(script, os.X_OK)
    command, env = ["bash", str(script), "--dry-run"], clean_environment(Path("/tmp"))
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/", env=env)
    assert "scripts/prepare" in shown.stdout
