"""The command line as a person uses it: real processes, what they print, how they end."""

import contextlib
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import requests
from PIL import Image

from deskroll.cli.main import cli
from tests.waiting import wait_until


@pytest.fixture
def env() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="deskroll-cli-") as folder:
        Path(folder).chmod(0o711)
        names = {name: value for name, value in os.environ.items() if not name.startswith("DESKROLL_")}
        yield {**names, "DESKROLL_RUNTIME_DIR": folder}


def deskroll(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deskroll", *args], capture_output=True, text=True, env=env, timeout=120, check=False
    )


def every_command(command: click.Command, context: click.Context) -> Iterator[click.Context]:
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from every_command(inner, click.Context(inner, context, info_name=name))


@pytest.mark.parametrize(
    "context",
    list(every_command(cli, click.Context(cli, info_name="deskroll"))),
    ids=lambda context: context.command_path,
)
def test_every_command_has_help_with_an_example(context: click.Context) -> None:
    said = context.get_help()
    example = re.search(rf"(Examples?|Start here):\s+(.*\s)?{context.command_path}\b", said)
    assert example, said


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, click\nfrom deskroll.cli.main import cli\n"
        "cli.main(['--help'], standalone_mode=False)\n"
        "print('heavy:', sorted({'aiohttp', 'numpy', 'pydantic', 'rich', 'msgspec', 'Xlib'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "heavy: []"


def test_doctor(env: dict[str, str]) -> None:
    result = deskroll("doctor", env=env)
    assert "Embedded desktops can run here." in result.stdout
    report = json.loads(deskroll("doctor", "--json", env=env).stdout)
    assert report["usable"] is True
    assert {"name", "ok", "found"} <= report["checks"][0].keys()


def test_doctor_says_what_to_install(env: dict[str, str], tmp_path: Path) -> None:
    result = deskroll("doctor", env={**env, "PATH": str(tmp_path)})
    assert result.returncode == 1
    assert re.search(r"to do: apt-get install .*\bxvfb\b.*\bopenbox\b", result.stdout)
    assert "bubblewrap does not run" in result.stdout
    up = deskroll("desktops", "up", env={**env, "PATH": str(tmp_path)})
    assert up.returncode == 2
    assert re.fullmatch(r"deskroll: local desktops need programs .* run:  apt-get install .*\n", up.stderr)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs a machine that can pass for another kind")
def test_doctor_says_in_one_line_that_system_calls_are_not_filtered(env: dict[str, str]) -> None:
    words = [sys.executable, "-m", "deskroll", "doctor", "--json"]
    said = {}
    for kind in ("x86_64", "i686"):
        run = subprocess.run(["setarch", kind, *words], env=env, capture_output=True, text=True, check=False)
        report = json.loads(run.stdout)
        (said[kind],) = [each for each in report["checks"] if each["name"] == "system calls"]
        assert report["usable"] is True
    assert said["x86_64"]["ok"] is True
    assert said["i686"]["ok"] is False
    assert said["i686"]["found"] == "not filtered in any sandbox: their numbers on i686 are not known here"


BAD = [
    (["nothing"], "No such command 'nothing'"),
    (["desktops", "up", "--count", "0"], "0 is not in the range"),
    (["desktops", "up", "--size", "large"], "write WIDTHxHEIGHT"),
    (["desktops", "up", "--size", "10x10"], "allowed: 160x120 to 7680x4320"),
    (["desktops", "up", "--serve", "5000"], "write HOST:PORT"),
    (["desktops", "up", "--serve", "127.0.0.1:99999"], "write HOST:PORT"),
    (["desktops", "up", "--serve", "0.0.0.0:5000", "--no-token"], "Leave out --no-token"),
    (["desktops", "up", "--serve", "127.0.0.1:²"], "write HOST:PORT"),
    (["desktops", "up", "--count", "2", "--serve", "127.0.0.1:65535"], "leaves no room for 2 ports"),
    (["desktops", "up", "--isolation", "chroot"], "'chroot' is not one of"),
    (["desktops", "shot"], "no desktop runs; start one"),
    (["desktops", "shot", "local-1"], "no desktop runs"),
    (["demo", "--output-dir", "/proc/nowhere"], "cannot make the folder"),
]


@pytest.mark.parametrize(("args", "words"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else None)
def test_bad_input_is_one_message_and_exit_code_2(env: dict[str, str], args: list[str], words: str) -> None:
    result = deskroll(*args, env=env)
    assert result.returncode == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_a_port_in_use_is_a_clear_error_and_leaves_nothing(env: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = deskroll("desktops", "up", "--serve", f"127.0.0.1:{port}", env=env)
    assert result.returncode == 2
    assert f"cannot serve on 127.0.0.1:{port}: " in result.stderr
    assert list(Path(env["DESKROLL_RUNTIME_DIR"], "desktops").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_desktops_up_ls_shot_and_clean_up(env: dict[str, str], tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "deskroll", "desktops", "up", "--count", "2", "--size", "640x480", "--json"]
    with subprocess.Popen([*command, "--serve", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True, env=env) as up:
        assert up.stdout is not None
        rows = json.loads(up.stdout.readline())
        assert len(rows) == 2
        for row in rows:
            headers = {"Authorization": f"Bearer {row['token']}"}
            assert requests.get(f"{row['url']}/platform", headers=headers, timeout=30).text == "Linux"
            assert requests.get(f"{row['url']}/platform", timeout=30).status_code == 401, "not to every local user"
        listed = json.loads(deskroll("desktops", "ls", "--json", env=env).stdout)
        assert {note["id"] for note in listed} == {row["id"] for row in rows}
        assert all(not note["orphaned"] for note in listed)
        assert {note["endpoint"] for note in listed} == {row["endpoint"] for row in rows}
        assert rows[0]["id"] in deskroll("desktops", "ls", env=env).stdout
        picture = tmp_path / "screen.png"
        assert "wants its token" in deskroll("desktops", "shot", rows[1]["id"], env=env).stderr
        with_token = {**env, "DESKROLL_TOKEN": rows[1]["token"]}
        assert deskroll("desktops", "shot", rows[1]["id"], "-o", str(picture), env=with_token).returncode == 0
        with Image.open(picture) as image:
            assert image.size == (640, 480)
        assert "name one of" in deskroll("desktops", "shot", env=env).stderr
        up.send_signal(number)
        assert up.wait(60) == 0
    wait_until(lambda: not list(Path(env["DESKROLL_RUNTIME_DIR"], "desktops").iterdir()), "every desktop is gone")
    assert "No desktops" in deskroll("desktops", "ls", env=env).stdout


def test_a_token_guards_every_request(env: dict[str, str]) -> None:
    command = [sys.executable, "-m", "deskroll", "desktops", "up", "--json", "--serve", "127.0.0.1:0"]
    secret = "tell-nobody"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**env, "DESKROLL_TOKEN": secret}) as up:
        assert up.stdout is not None
        line = up.stdout.readline()
        url = json.loads(line)[0]["url"]
        assert secret not in line
        assert requests.get(f"{url}/screenshot", timeout=30).status_code == 401
        assert requests.get(f"{url}/screenshot", headers={"Authorization": f"Bearer {secret}"}, timeout=30).ok
        notes = b"".join(path.read_bytes() for path in Path(env["DESKROLL_RUNTIME_DIR"]).rglob("*.json"))
        assert secret.encode() not in notes
        up.send_signal(signal.SIGINT)
        up.wait(60)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the printed line wants curl")
@pytest.mark.parametrize("options", [(), ("--no-token",)], ids=["by default", "no token"])
def test_what_is_printed_leads_to_a_screen(env: dict[str, str], tmp_path: Path, options: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "deskroll", "desktops", "up", "--serve", "127.0.0.1:0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as up:
        assert up.stdout is not None and up.stderr is not None
        try:
            lines = list(iter(up.stdout.readline, "Ctrl-C stops it.\n"))
            look = next(line for line in lines if line.startswith("look:")).removeprefix("look:")
            told = [line.removeprefix("token:") for line in lines if line.startswith("token:")]
            assert len(told) == (0 if options else 1)
            subprocess.run("".join([*told, look]), shell=True, check=True, cwd=tmp_path, timeout=60)
            with Image.open(tmp_path / "screen.png") as image:
                assert image.size == (1920, 1080)
            up.send_signal(signal.SIGTERM)
            assert up.wait(60) == 0
        finally:
            up.kill()
        assert ("every user of this machine" in up.stderr.read()) == bool(options)


def test_a_desktop_that_dies_is_told_at_once(env: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "deskroll", "desktops", "up", "--json", "--serve", "127.0.0.1:0", "--no-token"]
    log = tmp_path / "errors"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=env) as up,
    ):
        assert up.stdout is not None
        try:
            row = json.loads(up.stdout.readline())[0]
            fatal = {"command": ["pkill", "-9", "-f", "deskroll-guest"]}
            with contextlib.suppress(requests.ConnectionError):  # it may be dead before it has answered
                requests.post(f"{row['url']}/setup/launch", json=fatal, timeout=30)
            wait_until(lambda: f"desktop {row['id']} is lost: its guest died" in log.read_text(), "the loss is told")
            gone = requests.get(f"{row['url']}/platform", timeout=30)
            said = f"desktop {row['id']} is gone; start another one"
            assert (gone.status_code, gone.json()["message"]) == (502, said)
            up.send_signal(signal.SIGTERM)
            assert up.wait(60) == 0
        finally:
            up.kill()


def test_interrupted_before_it_is_up_is_told_by_the_exit_code(env: dict[str, str]) -> None:
    command = [sys.executable, "-m", "deskroll", "desktops", "up", "--count", "8"]
    folder = Path(env["DESKROLL_RUNTIME_DIR"], "desktops")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as up:
        wait_until(folder.exists, "the first desktop is on its way")
        up.send_signal(signal.SIGTERM)
        assert up.wait(60) == 130
    assert list(folder.iterdir()) == []
