"""`deskroll models up` as a person uses it: from the first server to Ctrl-C, with nothing left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deskroll.models.vllm.family import family
from tests.commands import clean_environment
from tests.models.weights.files import one_file
from tests.waiting import wait_until

PROGRAM = f"{sys.executable} {Path(__file__).with_name('scripted_vllm.py')}"


@pytest.fixture
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return clean_environment(tmp_path_factory.mktemp("r"))


def models(env: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deskroll", "models", *args]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120, check=False)


@contextmanager
def pool(env: dict[str, str], folder: Path, *args: str) -> Iterator[tuple[subprocess.Popen[str], dict]]:
    """A pool that is up, and how it stands then."""
    words = ["--ckpt-path", str(folder), "--set", f"vllm_command={PROGRAM}", "--set", "gpus=none", "--json", *args]
    command = [sys.executable, "-m", "deskroll", "models", "up", *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            assert "address" in process.stdout.readline()
            yield process, json.loads(process.stdout.readline())
            process.send_signal(signal.SIGINT)  # nothing where a test has ended it: else its servers would stay
            process.communicate(timeout=60)
        finally:
            process.kill()


def test_from_up_to_ctrl_c(env: dict[str, str], tmp_path: Path) -> None:
    first, second = (one_file(tmp_path / f"step_{number}", fill=number) for number in (1, 2))
    with pool(env, first, "--replicas", "2") as (process, status):
        address = status["address"]
        assert [each["state"] for each in status["endpoints"]] == ["up", "up"]
        asked = json.loads(models(env, "ask", "how is it?", "--pool", address, "--json").stdout)
        assert (asked["text"], asked["version"]) == ("fine", "1")
        done = models(env, "reload", str(second))
        assert (done.returncode, done.stdout) == (0, f"version 2 in {second} is served\n")
        assert "nothing newer" in models(env, "reload").stdout
        added = json.loads(models(env, "add", "http://127.0.0.1:9/v1", "--json").stdout)
        assert len(added["endpoints"]) == 3
        assert "http://127.0.0.1:9" not in models(env, "remove", "http://127.0.0.1:9/v1").stdout
        listed = models(env, "ls").stdout
        assert listed.count("version 2") == 3
        gone = models(env, "remove", "unix:/nowhere")
        assert gone.returncode == 2
        assert "there is no endpoint unix:/nowhere" in gone.stderr
        assert json.loads(models(env, "reap", "--dry-run", "--json").stdout) == []
        again = models(env, "up", "--ckpt-path", str(first), "--set", f"vllm_command={PROGRAM}")
        assert again.returncode == 2
        assert "something is served on" in again.stderr
        ids = [Path(each["url"].removeprefix("unix:")).parent.name for each in status["replicas"]]
        assert all(family(each) for each in ids)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0
        assert err == f"version 2 in {second} is served\nstopping ...\n"
    assert [family(each) for each in ids] == [set(), set()]
    root = Path(env["DESKROLL_RUNTIME_DIR"])
    assert [path.name for path in (root / "models").iterdir()] == ["logs"]
    assert list(root.glob("models.sock*")) == []
    missing = models(env, "ls")
    assert missing.returncode == 2
    assert "no pool of models answers" in missing.stderr


def test_what_a_killed_pool_left_is_ended_by_the_next(env: dict[str, str], tmp_path: Path) -> None:
    folder = one_file(tmp_path / "step_1")
    with pool(env, folder) as (process, status):
        (left,) = (Path(each["name"].removeprefix("unix:")).parent.name for each in status["endpoints"])
        process.kill()
        process.wait()
    assert family(left), "nobody has ended it"
    with pool(env, folder) as (process, _):
        assert not family(left)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert f"ended model server {left} (policy), which a process that died had left" in err


def test_a_killed_server_comes_back_and_a_killed_pool_is_reaped(env: dict[str, str], tmp_path: Path) -> None:
    with pool(env, one_file(tmp_path / "step_1")) as (process, status):
        first = status["endpoints"][0]["name"]
        (pid,) = family(Path(first.removeprefix("unix:")).parent.name)
        os.kill(pid, signal.SIGKILL)

        def is_back() -> str:
            (each,) = json.loads(models(env, "ls", "--json").stdout)["replicas"]
            return each["url"] if each["state"] == "up" and each["url"] != first else ""

        second = Path(wait_until(is_back, "it is back").removeprefix("unix:")).parent.name
        process.kill()
        process.wait()
    assert family(second), "nobody has ended it"
    gone = models(env, "ls")
    assert gone.returncode == 2
    assert "no pool of models answers on unix:" in gone.stderr
    assert "`deskroll models reap` ends" in gone.stderr
    (reaped,) = json.loads(models(env, "reap", "--json").stdout)
    assert reaped["id"] == second
    assert family(second) == set()
    assert models(env, "reap").stdout == "nothing is left\n"


def test_a_start_that_cannot_come_to_anything_ends_at_once_for_up_and_for_whoever_asks(
    env: dict[str, str], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    program = tmp_path / "vllm"
    said = "InductorError: InvalidCxxCompiler: No working C++ compiler found"
    program.write_text(f"#!/bin/sh\nuntil [ -e {go} ]; do sleep 0.05; done\necho '{said}'\nexit 1\n")
    program.chmod(0o755)
    words = ["up", "--ckpt-path", str(one_file(tmp_path / "step_1")), "--set", f"vllm_command={program}"]
    command = [sys.executable, "-m", "deskroll", "models"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, *words], stdout=pipe, stderr=pipe, text=True, env=env) as up:
        assert up.stdout is not None
        address = "unix:" + up.stdout.readline().partition("unix:")[2].partition(": ")[0]
        with subprocess.Popen([*command, "ask", "hello", "--pool", address], stderr=pipe, text=True, env=env) as asking:
            assert asking.stderr is not None
            assert "no server of" in (line := asking.stderr.readline())
            assert "server 0: starting; its log: " in line
            go.touch()
            _, asked = asking.communicate(timeout=60)
        _, err = up.communicate(timeout=60)
    assert (asking.returncode, up.returncode) == (1, 1)
    for text in (asked, err):
        assert f"ended with code 1: {said}; to do: install a C++ compiler" in text
    assert err.endswith(
        "given up: another start would end in the same way\n"
        "deskroll: no server of the pool is up: what is above says why\n"
    )


@pytest.mark.parametrize(
    ("prints", "shows"),
    [
        ("echo '0, 512, 81559'; echo '1, [N/A], [N/A]'", ["  GPU 0: 512 of 81,559 MB"]),
        ("echo 'NVIDIA-SMI has failed'; exit 9", []),
    ],
)
def test_the_memory_of_gpus_is_shown_where_there_are_any(
    env: dict[str, str], tmp_path: Path, prints: str, shows: list[str]
) -> None:
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{prints}\n")
    program.chmod(0o755)
    env["PATH"] = f"{program.parent}:{env['PATH']}"
    with pool(env, one_file(tmp_path / "step_1")):
        assert [line for line in models(env, "ls").stdout.splitlines() if "GPU" in line] == shows


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "ckpt_path is empty"),
        (("--ckpt-path", "/nowhere"), "ckpt_path cannot be served: /nowhere is not there"),
        (("--ckpt-path", "/tmp", "--listen", "10.0.0.1:80"), "is not loopback"),
        (("--ckpt-path", "/tmp", "--set", "refresh=never"), "refresh"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(env: dict[str, str], args: tuple[str, ...], says: str) -> None:
    ended = models(env, "up", *args)
    assert ended.returncode == 2
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr
