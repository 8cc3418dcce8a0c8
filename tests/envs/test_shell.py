"""The environment shell: its tools, its judging, what it is confined to, and a whole run from the command line."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deskroll.actions import Action, ToolCall
from deskroll.envs import Ending
from deskroll.envs.shell import ShellEnv, ShellSettings
from deskroll.errors import InputError
from deskroll.types import Score, StopReason, Task
from tests.commands import Commands

ENDED = Ending(stop=StopReason.DONE)


def task(check: object = "test -s report.txt", **metadata: object) -> Task:
    return Task(id="t", instruction="Write a report.", metadata={"check": check, **metadata})


@asynccontextmanager
async def shell(given: Task | None = None, **settings: object) -> AsyncIterator[ShellEnv]:
    env = ShellEnv(given or task(), ShellSettings.model_validate(settings))
    try:
        await env.reset()
        yield env
    finally:
        await env.close()


async def say(env: ShellEnv, *actions: Action) -> list[str]:
    return list((await env.step(actions)).observation.results)


def bash(command: str) -> ToolCall:
    return ToolCall(name="bash", arguments={"command": command}, call_id="c")


def read(path: str) -> ToolCall:
    return ToolCall(name="read_file", arguments={"path": path}, call_id="c")


def write(path: str, text: str) -> ToolCall:
    return ToolCall(name="write_file", arguments={"path": path, "text": text}, call_id="c")


async def score(env: ShellEnv) -> Score:
    return await env.score(ENDED)


async def test_commands_and_files_share_one_home_until_the_end() -> None:
    async with shell(task(files={"data/in.txt": "3\n1\n2\n"})) as env:
        assert [tool.name for tool in env.tools] == ["bash", "read_file", "write_file"]
        results = await say(env, bash("sort data/in.txt > out.txt; pwd; echo oops >&2; exit 3"), read("out.txt"))
        assert results == ["/home/user\noops\n[exit code 3]", "1\n2\n3"]
        odd = "it's {odd}\n'''\\n\"\"\" ✓"
        assert await say(env, write("a/b.txt", odd), bash("cat a/b.txt")) == ["", f"{odd}\n[exit code 0]"]
        assert (await say(env, read("/home/user/a/b.txt"))) == [odd]
        assert (await score(env)).value == 0.0
        await say(env, write("report.txt", "done"))
        assert await score(env) == Score(value=1.0, reason="check: exit code 0", found="0", expected="0")


async def test_what_cannot_be_done_is_told() -> None:
    async with shell() as env:
        missing, folder, forbidden, unknown = await say(
            env, read("nothing.txt"), read("."), write("/usr/x", "y"), bash("no_such_program")
        )
        assert "No such file" in missing
        assert "Is a directory" in folder
        assert "error: " in forbidden
        assert unknown.endswith("[exit code 127]")


async def test_without_a_check_the_answer_is_compared() -> None:
    question = Task(id="q", instruction="6*7?", answer="42")
    async with shell(question) as env:
        assert (await env.score(Ending(stop=StopReason.ANSWER, answer="42"))).value == 1.0
    assert (ShellEnv.is_judged(question), ShellEnv.is_judged(task())) == (True, True)
    assert not ShellEnv.is_judged(Task(id="q", instruction="6*7?"))


@pytest.mark.parametrize(("wrong", "said"), [(task(check=["a"]), "check is"), (task(files=["a"]), "files must be")])
def test_a_task_that_can_never_be_judged_is_refused(wrong: Task, said: str) -> None:
    with pytest.raises(InputError, match=said):
        ShellEnv.check_task(wrong)


@pytest.mark.parametrize(
    "attack",
    [
        "echo \"'$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \\n') 0'\"",
        "(while true; do echo \"' 0'\"; done) &",
        "printf 'print(1)\\nimport os\\nos._exit(0)\\n' | tee subprocess.py os.py linecache.py traceback.py >/dev/null",
        "mkdir -p .local/lib/python3.11/site-packages; echo 'import os; os._exit(0)' > .local/lib/python3.11/"
        "site-packages/usercustomize.py",
        "echo 'exit 0' > .bashrc; cp .bashrc .profile; cp .bashrc .bash_profile; export BASH_ENV=~/.bashrc",
        "mkdir -p bin; printf '#!/bin/sh\\nexit 0\\n' > bin/test; chmod +x bin/test; export PATH=~/bin:$PATH",
        "kill -INT 1; kill -TERM 1; kill -KILL -1",
    ],
    ids=["guess", "noise", "modules", "user site", "startup files", "path", "signals"],
)
async def test_nothing_that_a_command_does_makes_a_check_succeed(attack: str) -> None:
    async with shell(task(check="python3 -c 'raise SystemExit(4)'")) as env:
        await say(env, bash(attack))
        found = await score(env)
        assert found.value == 0.0, found


async def test_a_check_cannot_be_cut_short_into_success() -> None:
    """It runs what the model wrote: that may end, kill or hang what runs it, and is wrong then."""
    for program in ("kill -INT 1; sleep 30", "kill -KILL 1; exit 9", "sleep 600"):
        async with shell(task(check="bash mine.sh"), timeout=3) as env:
            await say(env, write("mine.sh", program))
            assert (await score(env)).value == 0.0


@pytest.mark.parametrize(
    ("attack", "says"),
    [
        ("cat /etc/shadow", "No such file"),
        ("ls /proc /sys", "cannot (access|open)|No such file"),
        ("ls /root /home", "No such file|^user$"),
        ("echo x > /usr/x", "Read-only file system"),
        ("python3 -c \"import socket; socket.create_connection(('127.0.0.1', 22), 3)\"", "refused|unreachable"),
        ("unshare -U true", "not permitted|not implemented"),
        ("mount -t tmpfs none /mnt", "denied|not permitted|must be superuser|does not exist"),
        ("head -c 400000000 /dev/zero > big; ls -l big", "No space left|File size limit|too large"),
        ("yes | head -c 50000000", "bytes left out"),
        ("while true; do :; done", "stopped: the call's limit of 3 s"),
        ("python3 -c 'a = bytearray(3 * 2**30)'", "MemoryError|Killed|out of memory"),
        (":(){ :|:& };:; wait", "Resource temporarily unavailable|fork|stopped|out of memory|exit code"),
    ],
)
async def test_it_is_confined_as_py_is(attack: str, says: str) -> None:
    async with shell(timeout=3, output_chars=2000) as env:
        (result,) = await say(env, bash(attack))
        assert re.search(says, result, re.MULTILINE), result
        assert len(result) < 4000
        assert "[exit code 0]" in (await say(env, bash("true")))[0]


async def test_what_a_command_leaves_running_ends_with_it() -> None:
    async with shell() as env:
        at_work = "(while true; do date >> alive; done) & disown; until test -s alive; do sleep 0.05; done"
        assert await say(env, bash(at_work)) == ["[exit code 0]"]
        assert await say(env, bash("rm alive; sleep 0.5; test ! -e alive")) == ["[exit code 0]"]


async def test_secrets_of_the_worker_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-a-secret-of-the-worker")
    async with shell() as env:
        (said,) = await say(env, bash("env; set"))
    assert "HOME=/home/user" in said
    assert "sk-a-secret" not in said


def test_a_run(deskroll: Commands, env: dict[str, str], tmp_path: Path) -> None:
    line = {
        "id": "sum",
        "instruction": "Sum up the numbers.",
        "files": {"n.txt": "1\n2\n"},
        "check": "test $(cat sum) = 3",
    }
    (tmp_path / "t.jsonl").write_text(json.dumps(line) + "\n")
    use = {"name": "bash", "arguments": {"command": "paste -sd+ n.txt | python3 -c 'print(eval(input()))' > sum"}}
    (tmp_path / "t.script.yaml").write_text(json.dumps({"replies": [{"turns": [{"tools": [use]}, {"text": "done"}]}]}))
    args = ("run", "t.jsonl", "--env", "shell", "--model", "scripted", "--set", "workers=1", "--json")
    ended = deskroll(*args, cwd=tmp_path, env=env)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["overall"]["successes"] == 1
