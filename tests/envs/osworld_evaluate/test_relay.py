"""What a job of upstream's evaluators gets of its desktop: one that fails, one with huge files, one that launches."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from deskroll.desktops.base import Address
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.envs.base import Ending
from deskroll.envs.osworld.evaluate import evaluate
from deskroll.envs.osworld.evaluate.running import LARGEST_FILE
from deskroll.envs.osworld.evaluate.upstream.process import Worker
from deskroll.envs.osworld.evaluate.upstream.relay import serve_desktop
from deskroll.errors import DeathCause, DesktopError, DesktopLost, DesktopTimeout, EvaluatorError, GuestError, LeaseLost
from deskroll.types import Score, StopReason
from tests.envs.osworld_evaluate.making import judged, rule

DONE = Ending(stop=StopReason.DONE)
Answers = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Held:
    """A lease that lasts."""

    id = "lease-1"

    def remaining(self) -> float:
        return 3600.0

    async def cause_of_death(self, within: float) -> DeathCause | None:
        return None


@asynccontextmanager
async def guest(answers: Answers, hold: Held | None = None) -> AsyncIterator[GuestDesktop]:
    """A desktop whose guest answers so."""
    async with (
        RawTestServer(answers) as server,
        GuestDesktop(Address("failing", str(server.make_url(""))), hold=hold) as desktop,
    ):
        yield desktop


def vm(path: str) -> dict[str, Any]:
    return {"type": "vm_file", "path": f"/home/user/{path}", "dest": path}


FAILURES: list[tuple[int, dict[str, Any], Held | None, type[DesktopError]]] = [
    (503, {"message": "the session is gone", "lost": True}, None, DesktopLost),
    (500, {"message": "the session is gone", "lost": True}, None, DesktopLost),
    (504, {"message": "the screen was not done in time"}, None, DesktopTimeout),
    (401, {"message": "this desktop wants a token"}, Held(), LeaseLost),
    (401, {"message": "this desktop wants a token"}, None, GuestError),
]


def failing(status: int, answer: dict[str, Any]) -> Answers:
    async def answers(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/deskroll":
            return web.json_response({})
        return web.json_response(answer, status=status)

    return answers


@pytest.mark.usefixtures("upstream")
@pytest.mark.parametrize(("status", "answer", "hold", "kind"), FAILURES)
@pytest.mark.parametrize(
    ("func", "result", "expected"),
    [
        ("check_csv", vm("a.csv"), rule(expect=[])),
        ("is_utc_0", {"type": "vm_command_line", "command": ["timedatectl"]}, None),
    ],
)
async def test_a_desktop_that_fails_is_no_score(
    func: str,
    result: Any,
    expected: Any,
    status: int,
    answer: dict[str, Any],
    hold: Held | None,
    kind: type[DesktopError],
) -> None:
    """Upstream's getters keep it to themselves, and its metrics would give 0."""
    async with guest(failing(status, answer), hold) as desktop:
        with pytest.raises(kind, match="desktop failing"):
            await evaluate(judged(func, result, expected), desktop, DONE, evaluators="upstream")


@pytest.mark.usefixtures("upstream")
@pytest.mark.parametrize("status", [400, 403, 404, 500])
async def test_a_desktop_that_refuses_is_a_0(status: int) -> None:
    async with guest(failing(status, {"error": "File not found"})) as desktop:
        task = judged("check_csv", vm("a.csv"), rule(expect=[]))
        assert (await evaluate(task, desktop, DONE, evaluators="upstream")).value == 0.0


CUT_OFF: list[tuple[int, dict[str, Any], str]] = [
    (200, {"output": "", "error": "", "returncode": -9}, "was ended by SIGKILL"),
    (200, {"output": "", "error": "Killed", "returncode": 137}, "was ended by SIGKILL"),
    (200, {"output": "42", "error": "", "returncode": -15}, "was ended by SIGTERM"),
    (200, {"output": "", "error": "", "returncode": 139}, "was ended by SIGSEGV"),
    (200, {"output": "", "error": "", "returncode": -40}, "was ended by signal 40"),
    (500, {"status": "error", "message": "Command 'x' timed out after 120 seconds"}, "timed out after 120 seconds"),
]


@pytest.mark.parametrize(("status", "answer", "words"), CUT_OFF)
@pytest.mark.parametrize(
    "result",
    [
        {"type": "vm_command_line", "command": ["timedatectl"]},
        {"type": "vlc_config"},
        {"type": "chrome_appearance_mode_ui"},
        {"type": "json_value", "path": "~/a.json"},
    ],
    ids=lambda result: str(result["type"]),
)
async def test_a_command_that_was_cut_off_is_no_score(
    result: Any, status: int, answer: dict[str, Any], words: str
) -> None:
    """What it had printed until then says nothing of what the agent did."""
    async with guest(failing(status, answer)) as desktop:
        with pytest.raises(EvaluatorError, match=f"task 't': desktop failing: .*{words}"):
            await evaluate(judged("match_in_list", result, rule(expected=["", "42"])), desktop, DONE)


@pytest.mark.usefixtures("upstream")
@pytest.mark.parametrize(("status", "answer", "words"), CUT_OFF)
async def test_a_command_that_was_cut_off_is_no_score_of_upstreams_either(
    status: int, answer: dict[str, Any], words: str
) -> None:
    task = judged("is_utc_0", {"type": "vm_command_line", "command": ["timedatectl"]})
    async with guest(failing(status, answer)) as desktop:
        with pytest.raises(EvaluatorError, match=f"task 't': desktop failing: .*{words}"):
            await evaluate(task, desktop, DONE, evaluators="upstream")


@pytest.mark.parametrize("code", [1, 2, 124, 126, 127, 128, 129, 141, 255])
async def test_a_command_that_ended_by_itself_is_judged_whatever_its_status(code: int) -> None:
    """`git` ends with 129 where it is called wrongly, and 141 is the end of who writes to one that has read enough."""
    async with guest(failing(200, {"output": "42", "error": "", "returncode": code})) as desktop:
        task = judged("exact_match", {"type": "vm_command_line", "command": ["x"]}, rule(expected="42"))
        assert (await evaluate(task, desktop, DONE)).value == 1.0


def sized(sizes: dict[str, int]) -> Answers:
    """Files of so many bytes; those of more than a gigabyte are refused, as guests refuse them."""

    async def answers(request: web.BaseRequest) -> web.StreamResponse:
        if request.path != "/file":
            return web.json_response({})
        path = str((await request.post())["file_path"])
        if sizes[path] > 1 << 30:
            return web.json_response({"message": f"{path} has {sizes[path]} bytes"}, status=413)
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(sizes[path] >> 20):
            await response.write(b" " * (1 << 20))
        await response.write(b"{}")
        return response

    return answers


async def score_of(sizes: dict[str, int], result: Any, expected: Any) -> Score:
    async with guest(sized({f"/home/user/{name}": size for name, size in sizes.items()})) as desktop:
        func = "compare_text_file" if expected["type"] == "vm_file" else "check_json"
        return await evaluate(judged(func, result, expected), desktop, DONE, evaluators="upstream")


@pytest.mark.usefixtures("upstream")
@pytest.mark.parametrize("size", [LARGEST_FILE, 1 << 30, (1 << 30) + 1])
async def test_a_file_that_is_too_large_to_be_judged_is_0(size: int) -> None:
    score = await score_of({"a.json": size}, vm("a.json"), rule(expect=[]))
    assert score.value == 0.0
    assert "/home/user/a.json has " in score.reason
    assert " bytes" in score.reason


@pytest.mark.usefixtures("upstream")
async def test_a_large_file_within_the_bound_is_judged() -> None:
    assert (await score_of({"a.json": LARGEST_FILE - (1 << 20)}, vm("a.json"), rule(expect=[]))).value == 1.0


@pytest.mark.usefixtures("upstream")
async def test_where_the_expected_file_is_too_large_it_is_not_scored() -> None:
    with pytest.raises(EvaluatorError, match=r"/home/user/b\.txt has more than \d+ bytes"):
        await score_of({"a.txt": 0, "b.txt": LARGEST_FILE}, vm("a.txt"), vm("b.txt"))


async def test_a_job_can_start_a_program_and_set_nothing_up(desktop: GuestDesktop, tmp_path: Path) -> None:
    """Getters start a browser that was closed."""
    connector = aiohttp.UnixConnector(path=str(tmp_path / "5000.sock"))
    async with serve_desktop(desktop, tmp_path, {}), aiohttp.ClientSession(connector=connector) as session:
        command = {"command": ["chromium", "--remote-debugging-port=1337"], "shell": False}
        async with session.post("http://guest/setup/launch", json=command) as answer:
            assert answer.status == 200
            assert "chromium --remote-debugging-port=1337 launched" in await answer.text()
        async with session.post("http://guest/setup/upload", json={}) as answer:
            assert answer.status == 404


OWNER = """
import sys, pathlib
from deskroll.envs.osworld.evaluate.upstream.process import Worker
worker = Worker(pathlib.Path("unused"))
print(worker.folder, flush=True)
sys.stdin.read()
"""


async def test_the_folder_of_a_killed_owner_is_removed(runtime_folder: Path) -> None:
    owners = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", OWNER, stdin=PIPE, stdout=PIPE) for _ in range(2)
    ]
    try:
        folders = []
        for owner in owners:
            assert owner.stdout is not None
            folders.append(Path((await owner.stdout.readline()).decode().strip()))
        owners[0].kill()
        await owners[0].wait()
        assert all(folder.is_dir() and folder.is_relative_to(runtime_folder) for folder in folders)
        await Worker(Path("unused")).end()
        assert [folder.parent.exists() for folder in folders] == [False, True], "of the other, who lives, it stays"
    finally:
        await owners[1].communicate(b"")
    assert not folders[1].parent.exists()
