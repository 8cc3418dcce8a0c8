"""`deskroll pool` as a person uses it, on simulated desktops."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment of its own, so that no pool of anybody else's is met."""
    return {**os.environ, "DESKROLL_RUNTIME_DIR": str(tmp_path / "run"), "DESKROLL_TOKEN": "", "COLUMNS": "100"}


def deskroll(*args: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deskroll", *args]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, check=False)


@contextmanager
def served(*args: str, env: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A pool that is served, and where."""
    command = [sys.executable, "-m", "deskroll", "pool", "serve", "--provider", "sim", *args]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("pool of"), line + process.communicate()[1]
            yield process, line.split()[-1]
        finally:
            process.kill()


def states(env: dict[str, str], *args: str) -> dict[str, int]:
    answer = deskroll("pool", "status", "--json", *args, env=env)
    assert answer.returncode == 0, answer.stderr
    found: dict[str, int] = json.loads(answer.stdout)["states"]
    return found


def test_serve_status_release_resize_drain(env: dict[str, str]) -> None:
    with served("--num-vms", "2", "-o", "boot=0", "-o", "reset=0", env=env) as (process, at):
        holder = subprocess.Popen(
            [sys.executable, "-m", "tests.desktops.pool.holder", at, "2"], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        with holder:
            assert holder.stdout is not None
            held = json.loads(holder.stdout.readline())
            table = deskroll("pool", "status", env=env).stdout
            assert "sim pool of 2: 2 leased" in table
            assert "limits now" in table
            for desktop_id in held:
                assert desktop_id in table
            answer = deskroll("pool", "release", held[0], env=env)
            assert "taken back" in answer.stdout
            wait_until(lambda: states(env)["leased"] == 1, "one was taken back")
            answer = deskroll("pool", "release", "sim-none", env=env)
            assert answer.returncode == 2
            assert "no desktop 'sim-none'" in answer.stderr
            holder.kill()
        wait_until(lambda: states(env)["ready"] == 2, "both are free")
        assert deskroll("pool", "resize", "3", env=env).returncode == 0
        wait_until(lambda: states(env)["ready"] == 3, "there is one more")
        assert deskroll("pool", "drain", env=env).returncode == 0
        wait_until(lambda: sum(states(env).values()) == 0, "nothing is left")
        assert "draining" in deskroll("pool", "status", env=env).stdout
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=30)
        assert process.returncode == 0
        assert "stopping" in out
        assert "Traceback" not in errors
        assert held[0] in errors, "who serves is told of leases that were taken away"
    assert not Path(at.removeprefix("unix:")).exists()


def test_tcp_with_a_token(env: dict[str, str]) -> None:
    refused = deskroll("pool", "serve", "--provider", "sim", "--listen", "127.0.0.1:0", env=env)
    assert refused.returncode == 2
    assert "DESKROLL_TOKEN" in refused.stderr
    token = secrets.token_hex(8)
    secret = {**env, "DESKROLL_TOKEN": token}
    with served("--listen", "127.0.0.1:0", "--num-vms", "1", env=secret) as (_, at):
        wait_until(lambda: states(secret, "--at", at)["ready"] == 1, "it is ready")
        answer = deskroll("pool", "status", "--at", at, env=env)
        assert answer.returncode == 1
        assert "wants its token" in answer.stderr
        commands = Path("/proc").glob("[0-9]*/cmdline")
        assert not any(token.encode() in _read(file) for file in commands), "a secret is in no command line"


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["status"], "no pool answers"),
        (["status", "--at", "nonsense"], "unix:PATH"),
        (["serve", "--provider", "simm"], "did you mean sim"),
        (["serve", "--provider", "sim", "-o", "bot=1"], "bot: there is no such field"),
        (["serve", "--provider", "sim", "-o", "boot=soon"], "boot"),
        (["serve", "--provider", "sim", "-o", "boot"], "KEY=VALUE"),
        (["serve", "--provider", "local", "-o", "boot=1"], "isolation"),
        (["serve", "--provider", "sim", "--quota", "many"], "not a quota"),
        (["serve", "--num-vms", "2", "--min-vms", "3", "--provider", "sim"], "min_vms is 3"),
        (["resize", "2", "--min-vms", "3"], "--min-vms 3"),
    ],
)
def test_errors_say_what_is_wrong(args: list[str], words: str, env: dict[str, str]) -> None:
    answer = deskroll("pool", *args, env=env)
    assert answer.returncode != 0
    assert words in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_pool_that_is_not_there_is_told_as_a_run_that_is_not(env: dict[str, str]) -> None:
    answer = deskroll("pool", "status", "--json", env=env)
    assert answer.returncode == 2
    assert "no pool answers" in json.loads(answer.stdout)["error"]


@pytest.mark.parametrize("command", ["serve", "status", "release", "resize", "drain"])
def test_help_has_an_example(command: str, env: dict[str, str]) -> None:
    answer = deskroll("pool", command, "--help", env=env)
    assert answer.returncode == 0
    assert f"deskroll pool {command}" in answer.stdout


def test_reap_with_nothing_to_do_says_so(env: dict[str, str]) -> None:
    answer = deskroll("desktops", "reap", env=env)
    assert answer.returncode == 0
    assert "Nothing to remove" in answer.stdout
    assert json.loads(deskroll("desktops", "reap", "--json", env=env).stdout) == []
