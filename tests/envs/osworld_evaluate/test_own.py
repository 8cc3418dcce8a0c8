"""Functions of a task's own that judge it: what they are given and give, what they cannot reach, how they fail."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers.local.provider import LocalProvider
from deskroll.envs.base import Ending
from deskroll.envs.osworld.env import OSWorldEnv
from deskroll.envs.osworld.evaluate import evaluate
from deskroll.envs.osworld.evaluate.own.named import Function
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.envs.osworld.setup import SetupContext, perform
from deskroll.errors import EvaluatorError, InputError
from deskroll.tasks import parse_task
from deskroll.types import Score, StopReason, Task
from tests.commands import Commands
from tests.envs.osworld_evaluate.making import inline, judged, rule

DONE = Ending(stop=StopReason.DONE)
OUT = "/home/user/out.txt"
VM = {"type": "vm_file", "path": OUT, "dest": "out.txt"}
PAGE = (Path(__file__).parents[3] / "docs" / "evaluators.md").read_text()
(TASK,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
(CHECKS,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


async def score(desktop: GuestDesktop, folder: Path, source: str, task: Task, **kept: dict[str, bytes]) -> Score:
    (folder / "check.py").write_text(source)
    context = SetupContext(task.id, OSWorldSettings(), folder)
    return await evaluate(task, desktop, DONE, context, keep=kept.get("kept", {}).__setitem__)


def own(expected: Any = None, *, result: Any = None, **options: Any) -> Task:
    return judged("file:check.py:check", result or VM, expected, options=options)


async def test_the_pages_example_runs(tmp_path: Path) -> None:
    task = parse_task(json.loads(TASK), "here")
    (tmp_path / "checks.py").write_text(CHECKS)
    context = SetupContext(task.id, OSWorldSettings(), tmp_path)
    assert OSWorldEnv.prepare([task], OSWorldSettings(), tmp_path)
    async with LocalProvider() as provider, GuestDesktop(await provider.boot(DesktopSpec())) as desktop:
        await perform(task.setup, desktop, context)
        found = []
        for text in (None, b"none\n", b"The total: 549", b"rent and food: 550.00\n"):
            if text is not None:
                await desktop.write_file("/home/user/total.txt", text)
            found.append(await evaluate(task, desktop, DONE, context))
    assert [each.value for each in found] == [0.0, 0.0, 0.0, 1.0]
    assert [each.reason for each in found] == [
        "there is no total.txt", "there is no number in it", "it says 549", "it says 550.00",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "value"), [("return True", 1.0), ("return 0.25", 0.25), ("return 0, 'no'", 0.0), ("return -0.5", 0.0)]
)
async def test_what_it_gives(desktop: GuestDesktop, tmp_path: Path, body: str, value: float) -> None:
    await desktop.write_file(OUT, b"x")
    assert (await score(desktop, tmp_path, f"def check(result):\n    {body}\n", own())).value == value


async def test_what_it_is_given(desktop: GuestDesktop, tmp_path: Path) -> None:
    source = (
        "def check(result, expected, **options):\n"
        "    return result.endswith('/out.txt') and open(result, 'rb').read() == bytes(range(256)) * 9 and\\\n"
        "        expected == {'a': [1, '北', None]} and options == {'n': 3}\n"
    )
    await desktop.write_file(OUT, bytes(range(256)) * 9)
    assert (await score(desktop, tmp_path, source, own(rule(a=[1, "北", None]), n=3))).value == 1.0


async def test_what_was_found_is_told(desktop: GuestDesktop, tmp_path: Path) -> None:
    await desktop.write_file(OUT, b"cake")
    said = await score(desktop, tmp_path, "def check(r, e):\n    return 0\n", own(rule(expected="pie")))
    assert (said.found, said.expected, said.reason) == ("cake", "pie", "file:check.py:check: 0")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return None", "a number from 0 to 1 is wanted"),
        ("return 7", "gave 7, which is not a score"),
        ("return float('nan')", "a number from 0 to 1 is wanted"),
        ("return {}['no']", "KeyError: 'no'"),
        ("raise SystemExit(0)", "the code ended the interpreter"),
        ("import os; os._exit(0)", "the code ended the interpreter"),
        ("x = bytearray(4 << 30)", "MemoryError"),
        ("import os; os.write(201, b\"'forged'\\n\"); return 0", "it broke its sandbox's answer"),
    ],
)
async def test_what_is_not_scored(desktop: GuestDesktop, tmp_path: Path, body: str, said: str) -> None:
    await desktop.write_file(OUT, b"x")
    with pytest.raises(EvaluatorError) as caught:
        await score(desktop, tmp_path, f"def check(result):\n    {body}\n", own())
    assert said in str(caught.value)


async def test_its_traceback_is_that_of_its_file(desktop: GuestDesktop, tmp_path: Path) -> None:
    await desktop.write_file(OUT, b"x")
    with pytest.raises(EvaluatorError) as caught:
        await score(desktop, tmp_path, "def help():\n    return 1 / 0\n\ndef check(r):\n    return help()\n", own())
    assert caught.value.trace.splitlines()[:3] == [
        "Traceback (most recent call last):",
        '  File "check.py", line 5, in check',
        "    return help()",
    ]


async def test_a_file_that_it_stumbles_over_is_0_where_the_expected_one_is_well(
    desktop: GuestDesktop, tmp_path: Path
) -> None:
    source = "import json\n\ndef check(r, e):\n    return json.load(open(r)) == json.load(open(e))\n"
    task, kept = own(inline("e.json", b"[1]")), dict[str, bytes]()
    await desktop.write_file(OUT, b"{broken")
    said = await score(desktop, tmp_path, source, task, kept=kept)
    assert (said.value, "JSONDecodeError" in said.reason) == (0.0, True)
    assert b"json.load(open(r))" in kept["evaluator.txt"]
    await desktop.write_file(OUT, b" [1]\n")
    assert (await score(desktop, tmp_path, source, task)).value == 1.0


async def test_it_reaches_nothing(desktop: GuestDesktop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hush")
    (tmp_path / "near.txt").write_text("hush")
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    listening = server.sockets[0].getsockname()[1]
    source = (
        "import os, socket\n\n"
        "def check(r):\n"
        "    seen = []\n"
        "    if 'hush' in str(dict(os.environ)): seen.append('environment')\n"
        f"    for path in ({str(tmp_path / 'near.txt')!r}, '/proc/1/environ', '/root', '/etc/shadow'):\n"
        "        if os.path.exists(path): seen.append(path)\n"
        "    try:\n"
        f"        socket.create_connection(('127.0.0.1', {listening}), 5)\n"
        "        seen.append('the loopback')\n"
        "    except OSError:\n"
        "        pass\n"
        "    return not seen, str(seen)\n"
    )
    await desktop.write_file(OUT, b"x")
    async with server:
        said = await score(desktop, tmp_path, source, own())
    assert (said.value, said.reason) == (1.0, "[]")


@pytest.mark.parametrize(
    ("func", "said"),
    [
        ("file:check.py", "write file:FILE.py:FUNCTION"),
        ("file:check.txt:check", "write file:FILE.py:FUNCTION"),
        ("file:none.py:check", "there is no file"),
        ("file:check.py:other", "check.py has no function other; it has: check"),
        ("file:broken.py:check", "broken.py is not valid Python"),
        ("file:../check.py:check", "is outside the folder of the tasks"),
        ("file:link.py:check", "is outside the folder of the tasks"),
        ("file:/etc/check.py:check", "is outside the folder of the tasks"),
        ("file:.hidden.py:check", "a name in it is hidden"),
    ],
)
def test_what_is_refused_before_anything_starts(tmp_path: Path, func: str, said: str) -> None:
    folder = tmp_path / "tasks"
    folder.mkdir()
    (tmp_path / "check.py").write_text("def check(r):\n    return 1\n")
    (folder / "check.py").write_text("def check(r):\n    return 1\n")
    (folder / "broken.py").write_text("def check(\n")
    (folder / "link.py").symlink_to(tmp_path / "check.py")
    with pytest.raises(InputError) as caught:
        OSWorldEnv.prepare([judged(func, VM, None)], OSWorldSettings(), folder)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        (judged("file:check.py:check", None, None), "evaluator.result is missing"),
        (
            judged("file:check.py:check", {"type": "bookmarks"}, None),
            "there is no getter 'bookmarks' for file:check.py",
        ),
    ],
)
def test_what_is_wrong_with_a_task(task: Task, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        OSWorldEnv.check_task(task)


def test_names() -> None:
    assert Function.parse("file:a/b.py:c") == Function(file="a/b.py", name="c")


def test_a_resume_refuses_another_one(deskroll: Commands, env: dict[str, str], tmp_path: Path) -> None:
    task = {"id": "t", "instruction": "x", "evaluator": {"func": "file:check.py:check", "result": VM}}
    (tmp_path / "t.jsonl").write_text(json.dumps(task) + "\n")
    (tmp_path / "check.py").write_text("def check(result):\n    return result is None\n")
    command = ["run", "t.jsonl", "--agent", "noop", "--provider", "sim", "--num-vms", "1", "--run-id", "one"]
    done = deskroll(*command, "--set", "workers=1", "--json", cwd=tmp_path, env=env)
    assert done.code == 1, done.err  # a simulated desktop shows nothing that could be judged
    assert json.loads(done.out)["overall"]["unscored"] == 1
    (tmp_path / "check.py").write_text("def check(result):\n    return 0\n")
    refused = deskroll("run", "--resume", "results/one", cwd=tmp_path, env=env)
    assert refused.code == 2
    assert "files beside the tasks) has changed" in refused.err
