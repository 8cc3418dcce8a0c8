"""`deskroll models` as a person uses it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

KEY = "sk-very-secret"
SCRIPT = """\
replies:
  - when: compute
    turns: [{text: let me see, tools: [{name: calculator, arguments: {a: 1}}]}]
  - turns: [{text: "done"}]
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "script.yaml"
    file.write_text(SCRIPT)
    return file


def environment(**more: str) -> dict[str, str]:
    names = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    return {**names, "COLUMNS": "200", **more}


def deskroll(*args: str, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deskroll", "models", *args],
        capture_output=True, text=True, env=environment(**env), cwd=cwd, timeout=60, check=False,
    )  # fmt: skip


@contextmanager
def served(*args: str, **env: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A scripted server, and the first line that it prints."""
    command = [sys.executable, "-m", "deskroll", "models", "scripted", *args]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment(**env)) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            yield process, line
        finally:
            process.kill()


def test_serve_and_ask(script: Path, tmp_path: Path) -> None:
    with served(str(script)) as (process, line):
        url = line.split()[-1]
        assert line == f"scripted model on {url}\n"
        asked = deskroll("ask", "hello", "--base-url", url)
        assert asked.returncode == 0, asked.stderr
        answer, figures = asked.stdout.splitlines()
        assert answer == "done"
        assert "2 + 1 tokens, cost unknown" in figures
        asked = deskroll("ask", "compute", OPENAI_BASE_URL=url)
        assert 'calls calculator({"a":1})' in asked.stdout
        picture = tmp_path / "screen.png"
        picture.write_bytes(b"\x89PNG\r\n\x1a\n")
        asked = deskroll("ask", "look", "--base-url", url, "--image", str(picture), "--model", "m", "--json",
                         "--set", "price={input: 1, output: 1}")  # fmt: skip
        read = json.loads(asked.stdout)
        assert (read["text"], read["model"], read["cost_usd"]) == ("done", "m", pytest.approx(3e-6))
        assert read["seconds"] > 0
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "3 requests, 0 refused; faults: none" in out
    assert errors == ""


def test_a_token_and_an_env_file(script: Path, tmp_path: Path) -> None:
    with served(str(script), "--token-env", "MY_TOKEN", "--json", MY_TOKEN=KEY) as (process, line):
        url = json.loads(line)["url"]
        refused = deskroll("ask", "hello", "--base-url", url, "--set", "retries=0", OPENAI_API_KEY="sk-wrong")
        assert refused.returncode == 1
        assert "the key is not accepted" in refused.stderr
        (tmp_path / ".env").write_text(f"OPENAI_API_KEY={KEY}\nOPENAI_BASE_URL={url}\n")
        asked = deskroll("ask", "hello", cwd=tmp_path)
        assert asked.stdout.startswith("done\n"), asked.stderr
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=30)
    assert json.loads(out)["requests"] == 1, "who has no key has not asked"
    for shown in (refused.stdout, refused.stderr, asked.stdout, asked.stderr, out, errors, line):
        assert KEY not in shown
        assert "sk-wrong" not in shown


def test_a_vllm_on_a_socket(script: Path, tmp_path: Path) -> None:
    weights = tmp_path / "step_1"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(b"1")
    place = tmp_path / "model.sock"
    flags = ["--vllm", "--listen", f"unix:{place}", "--set", f"weights={weights}", "--set", "name=m"]
    with served(str(script), *flags) as (process, line):
        assert line == f"scripted model on unix:{place}\n"
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(place))
        connection.request("GET", "/v1/models")
        (card,) = json.loads(connection.getresponse().read())["data"]
        assert (card["id"], card["root"]) == ("m", str(weights))
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert not place.exists()


@pytest.mark.parametrize(
    ("args", "words", "code"),
    [
        (["scripted", "none.yaml"], "none.yaml: there is no such file", 2),
        (["scripted", "SCRIPT", "--listen", "nowhere"], "HOST:PORT", 2),
        (["scripted", "SCRIPT", "--listen", "0.0.0.0:0"], "--token-env", 2),
        (["scripted", "SCRIPT", "--listen", "0.0.0.0:0", "--vllm"], "know no key: use unix:PATH", 2),
        (["scripted", "SCRIPT", "--set", "name=m"], "add --vllm", 2),
        (["scripted", "SCRIPT", "--vllm", "--set", "nane=m"], "did you mean name?", 2),
        (["scripted", "SCRIPT", "--vllm", "--set", "weights=/no/such/folder"], "Cannot find any model weights", 2),
        (["scripted", "SCRIPT", "--token-env", "NOT_SET_AT_ALL"], "NOT_SET_AT_ALL", 2),
        (["ask"], "TEXT", 2),
        (["ask", "hi", "--base-url", "nowhere"], "base_url", 2),
        (["ask", "hi", "--base-url", "http://127.0.0.1:9/v1", "--set", "retries=0"], "is the server up", 1),
        (["ask", "hi", "--set", "temprature=1"], "did you mean temperature", 2),
        (["ask", "hi", "--set", f"api_key={KEY}"], "OPENAI_API_KEY", 2),
        (["ask", "hi", "--image", "none.png"], "none.png", 2),
        (["ask", "hi", "--image", "SCRIPT"], "neither PNG nor JPEG", 2),
        (["ask", "hi", "--prices", "none.yaml"], "none.yaml", 2),
    ],
)
def test_errors_say_what_is_wrong(args: list[str], words: str, code: int, script: Path) -> None:
    answer = deskroll(*[str(script) if arg == "SCRIPT" else arg for arg in args])
    assert answer.returncode == code, answer.stderr
    assert words in answer.stderr
    assert "Traceback" not in answer.stderr
    assert KEY not in answer.stderr


@pytest.mark.parametrize("command", ["ask", "scripted"])
def test_help_has_an_example(command: str) -> None:
    answer = deskroll(command, "--help")
    assert answer.returncode == 0
    assert f"deskroll models {command}" in answer.stdout
