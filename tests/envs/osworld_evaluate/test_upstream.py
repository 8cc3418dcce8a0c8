"""Upstream's own evaluators in their sandbox, where they are installed."""

from __future__ import annotations

import io
import shutil
from typing import Any

import pytest
from PIL import Image

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers.local.provider import LocalProvider
from deskroll.envs.base import Ending
from deskroll.envs.osworld.evaluate import evaluate
from deskroll.envs.osworld.evaluate.parts import evaluation_of
from deskroll.envs.osworld.evaluate.upstream.judging import judge
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.envs.osworld.setup import Around
from deskroll.errors import EvaluatorError, FailureClass
from deskroll.types import StopReason
from tests.envs.osworld_evaluate.making import judged, rule
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("upstream")
DONE = Ending(stop=StopReason.DONE)
AROUND = Around("t", OSWorldSettings())


def vm(path: str) -> dict[str, Any]:
    return {"type": "vm_file", "path": f"/home/user/{path}", "dest": path}


def png(colour: tuple[int, int, int], size: tuple[int, int] = (40, 30), mark: int = 10) -> bytes:
    image = Image.new("RGB", size, colour)
    image.paste((255, 255, 255), (mark, 5, mark + size[0] // 4, size[1] // 2))
    out = io.BytesIO()
    image.save(out, "png")
    return out.getvalue()


@pytest.mark.parametrize(
    ("source", "value"),
    [(png((10, 90, 30)), 1.0), (png((10, 90, 30), (80, 60), 20), 1.0), (png((250, 0, 0), mark=25), 0.0), (b"MZ", 0.0)],
)
async def test_the_metric_that_the_package_lacks(source: bytes, value: float, desktop: GuestDesktop) -> None:
    await desktop.write_file("/home/user/out.png", source)
    await desktop.write_file("/home/user/gold.png", png((10, 90, 30)))
    task = judged("check_structure_sim_with_threshold", vm("out.png"), vm("gold.png"), options={"ssim_threshold": 0.8})
    assert (await evaluate(task, desktop, DONE)).value == value


async def test_a_file_that_is_not_there_is_0(desktop: GuestDesktop) -> None:
    assert (
        await evaluate(judged("compare_images", vm("no.png"), vm("no.png")), desktop, DONE, evaluators="upstream")
    ).value == 0.0


@pytest.mark.parametrize(
    ("func", "result", "expected"),
    [
        ("compare_python_pure_text", vm("no.py"), vm("no.py")),
        ("is_vlc_recordings_folder", vm("no"), rule(recording_file_path="/x")),
    ],
)
async def test_code_that_stumbles_over_a_file_that_is_not_there_gives_0(
    func: str, result: Any, expected: Any, desktop: GuestDesktop
) -> None:
    assert (await evaluate(judged(func, result, expected), desktop, DONE)).value == 0.0


async def test_a_crash_is_not_scored_and_its_traceback_is_kept(desktop: GuestDesktop) -> None:
    kept: dict[str, bytes] = {}
    task = judged("check_direct_json_object", {"type": "rule", "rules": "{"}, rule(expected={}))
    with pytest.raises(EvaluatorError, match="task 't': check_direct_json_object: JSONDecodeError") as caught:
        await evaluate(task, desktop, DONE, evaluators="upstream", keep=kept.__setitem__)
    assert caught.value.failure is FailureClass.EVALUATOR
    assert b"Traceback" in kept["evaluator.txt"]


async def test_a_missing_library_is_not_scored(desktop: GuestDesktop) -> None:
    await desktop.write_file("/home/user/out.png", png((1, 2, 3)))
    task = judged("compare_image_text", vm("out.png"), rule(type="text", text=["x"]))
    with pytest.raises(EvaluatorError, match="needs easyocr, which is not installed"):
        await evaluate(task, desktop, DONE)


async def test_who_is_late_is_ended_and_the_next_job_is_done(desktop: GuestDesktop) -> None:
    await desktop.write_file("/home/user/out.txt", b"a")
    task = judged("compare_text_file", vm("out.txt"), vm("out.txt"))
    (part,) = evaluation_of(task.evaluator).parts
    with pytest.raises(EvaluatorError, match=r"did not finish within 0\.001 s"):
        await judge(part, desktop, task, AROUND, seconds=0.001)
    assert (await judge(part, desktop, task, AROUND)).value == 1.0


ATTACK = b"""
import os, socket, subprocess, time
def test():
    assert not os.path.exists("/root") and not os.path.exists("/etc/passwd") and os.getuid() == 1000
    assert not [name for name in os.environ if "KEY" in name or "TOKEN" in name]
    try:
        socket.create_connection(("192.0.2.1", 80), timeout=1)
    except OSError:
        pass
    else:
        return False
    if os.fork() == 0:
        os.setsid()
        for n in range(3, 64):
            try:
                os.write(n, b'{"value": 1.0}\\nnonsense\\n')
            except OSError:
                pass
        time.sleep(3600)
    return True
"""


async def test_code_that_a_model_wrote_stays_inside_and_leaves_nothing(desktop: GuestDesktop) -> None:
    await desktop.write_file("/home/user/test.py", ATTACK)
    await desktop.write_file("/home/user/a.txt", b"a")
    await desktop.write_file("/home/user/b.txt", b"b")
    attack = judged("check_python_file_by_test_suite", vm("test.py"), vm("test.py"))
    wrong = judged("compare_text_file", vm("a.txt"), vm("b.txt"))
    for _ in range(2):
        assert (await evaluate(attack, desktop, DONE)).value == 1.0
        assert (await evaluate(wrong, desktop, DONE, evaluators="upstream")).value == 0.0


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
async def test_the_browser_is_reached_through_its_debugging_port() -> None:
    page = "data:text/html,<title>hello</title>"
    browser = ["chromium", "--no-sandbox", "--no-first-run", "--remote-debugging-port=9222", "--disable-gpu", page]
    async with LocalProvider() as provider:
        address = await provider.boot(DesktopSpec(width=800, height=600))
        async with GuestDesktop(address) as desktop:
            await desktop.launch(browser)
            await eventually(lambda: _listens(desktop), "the browser listens", timeout=60)
            expected = rule(type="url", urls=[page])
            task = judged("is_expected_tabs", {"type": "open_tabs_info"}, expected)
            assert (await evaluate(task, desktop, DONE)).value == 1.0


async def _listens(desktop: GuestDesktop) -> bool:
    return (await desktop.run(["curl", "-sf", "http://127.0.0.1:9222/json/version"])).returncode == 0


async def test_on_a_real_desktop() -> None:
    """Commands, files, the tree, the screen: all through the protocol; and nothing but the desktop is reached."""
    cases: list[tuple[str, Any, Any, float]] = [
        ("exact_match", {"type": "vm_command_line", "command": ["echo", "hi"]}, rule(expected="hi\n"), 1.0),
        ("exact_match", {"type": "vm_command_line", "command": "echo a|cat", "shell": True}, rule(expected="a\n"), 1.0),
        ("check_qt_max_volume", {"type": "vlc_config", "dest": "vlcrc"}, rule(expected_qt_max_volume=200), 1.0),
        ("check_qt_bgcone", {"type": "vlc_config", "dest": "vlcrc"}, rule(expected_qt_bgcone=1), 1.0),
        ("check_config_status", {"type": "gimp_config_file", "file_name": "no", "dest": "n"}, rule(key="a"), 0.0),
        ("is_vlc_fullscreen", {"type": "vm_screen_size"}, {"type": "vm_screen_size"}, 1.0),
        ("check_json_settings", vm("x.json"), rule(expected={"a": 1}), 1.0),
    ]  # fmt: skip
    async with LocalProvider() as provider:
        address = await provider.boot(DesktopSpec(width=320, height=240))
        async with GuestDesktop(address) as desktop:
            home = (await desktop.run('printf %s "$HOME"')).output
            await desktop.write_file(f"{home}/.config/vlc/vlcrc", b"qt-max-volume=200\n")
            await desktop.write_file("/home/user/x.json", b'{"a": 1, "b": 2}')
            for func, result, expected, value in cases:
                task = judged(func, result, expected)
                assert (await evaluate(task, desktop, DONE, evaluators="upstream")).value == value, (func, result)
