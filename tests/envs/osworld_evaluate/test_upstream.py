"""Upstream's own evaluators in their sandbox, where they are installed."""

from __future__ import annotations

import io
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import RawTestServer
from PIL import Image, ImageOps

from deskroll.desktops.base import Address, DesktopSpec
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers.local.provider import LocalProvider
from deskroll.envs.base import Ending
from deskroll.envs.osworld.evaluate import evaluate
from deskroll.envs.osworld.evaluate.parts import evaluation_of
from deskroll.envs.osworld.evaluate.upstream.judging import judge
from deskroll.envs.osworld.evaluate.upstream.place import find_environment
from deskroll.envs.osworld.evaluate.upstream.process import Answer, Worker
from deskroll.envs.osworld.evaluate.upstream.relay import serve_desktop
from deskroll.envs.osworld.evaluate.upstream.worker_pool import WorkerPool
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.envs.osworld.setup import SetupContext
from deskroll.errors import DesktopError, EvaluatorError, FailureClass
from deskroll.types import StopReason
from tests.envs.osworld_evaluate.making import docx, judged, pdf, pptx, rule, xlsx
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("upstream")
DONE = Ending(stop=StopReason.DONE)
AROUND = SetupContext("t", OSWorldSettings())


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


LONG_TEXT = "a line of text\n" * 400


@pytest.mark.parametrize(
    ("func", "result", "expected", "told"),
    [
        ("compare_text_file", vm("o.txt"), vm("g.txt"), ("é one", "é two")),
        ("compare_docx_files", vm("o.docx"), vm("g.docx"), ("o.docx, 3 bytes", f"g.docx, {len(docx('x'))} bytes")),
        ("match_in_list", {"type": "rule", "rules": "41"}, rule(expected=["42"]), ("41", "['42']")),
        ("check_list", vm("no.txt"), rule(expect=["x"]), (None, "{'expect': ['x']}")),
        ("is_in_list", {"type": "rule", "rules": LONG_TEXT}, rule(expected="z"), (LONG_TEXT[:496] + " ...", "z")),
    ],
)
async def test_a_verdict_says_what_was_found_and_what_was_expected(
    func: str, result: Any, expected: Any, told: tuple[str | None, str | None], desktop: GuestDesktop
) -> None:
    files = {"o.txt": "é one".encode(), "g.txt": "é two".encode(), "o.docx": b"MZ\0", "g.docx": docx("x")}
    for name, data in files.items():
        await desktop.write_file(f"/home/user/{name}", data)
    score = await evaluate(judged(func, result, expected), desktop, DONE, evaluators="upstream")
    assert (score.value, score.found, score.expected) == (0.0, *told)


async def test_a_crash_is_not_scored_and_has_its_traceback(desktop: GuestDesktop) -> None:
    task = judged("check_direct_json_object", {"type": "rule", "rules": "{"}, rule(expected={}))
    with pytest.raises(EvaluatorError, match="task 't': check_direct_json_object: JSONDecodeError") as caught:
        await evaluate(task, desktop, DONE, evaluators="upstream")
    assert caught.value.failure is FailureClass.EVALUATOR
    assert "Traceback" in caught.value.trace


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


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def worker(upstream: None) -> AsyncIterator[Worker]:
    """One worker by itself: what the pool of them does about it is left out."""
    environment = find_environment()
    assert environment is not None
    one = Worker(environment)
    try:
        await one.start()
        yield one
    finally:
        await one.end()


async def asked(
    worker: Worker, desktop: GuestDesktop, func: str, result: str, expected: str, **options: object
) -> Answer:
    """The worker's answer to a part that compares two files of the desktop."""
    job = {
        "task_id": "t", "instruction": "", "config": [], "evaluator": {}, "func": func, "result": vm(result),
        "expected": vm(expected), "options": options,
    }  # fmt: skip
    async with serve_desktop(desktop, worker.folder, {}):
        return await worker.ask(job, 60)


async def runs(worker: Worker, desktop: GuestDesktop, code: str) -> Answer:
    """The worker's answer to code that a model wrote."""
    await desktop.write_file("/home/user/code.py", code.encode())
    return await asked(worker, desktop, "check_python_file_by_test_suite", "code.py", "code.py")


EARLY = """
import os, socket, sys
def test():
    frame, found = sys._getframe(), {}
    while frame:
        found |= frame.f_locals
        frame = frame.f_back
    said = b'{"value": 1.0, "token": "%s"}\\n' % str(found.get("token", "")).encode()
    for n in [0, *range(3, 64)]:
        try:
            os.write(n, said)
        except OSError:
            pass
    os.kill(os.getpid(), 9)
"""


async def test_a_job_cannot_answer_before_it_has_ended(worker: Worker, desktop: GuestDesktop) -> None:
    answer = await runs(worker, desktop, EARLY)
    assert (answer.value, answer.error) == (None, "the evaluator died (status 9)")


FORGES = """
import os
for n in range(3, 64):
    try:
        os.pwrite(n, b'{"value": 1.0}', 0)
    except OSError:
        pass
"""


@pytest.mark.parametrize("then", ["os._exit(0)", "raise SystemExit", "os.kill(os.getpid(), 9)"])
async def test_a_wrong_solution_cannot_write_its_own_answer(then: str, worker: Worker, desktop: GuestDesktop) -> None:
    """It runs where the metric does, and finds the same files open."""
    test = b"from solution import add\ndef test():\n    return add(1, 2) == 3\n"
    await desktop.write_file("/home/user/test.py", test)
    for solution, value in (("def add(a, b): return a - b", 0.0), (FORGES + then, None)):
        await desktop.write_file("/home/user/solution.py", solution.encode())
        answer = await asked(worker, desktop, "check_python_file_by_test_suite", "solution.py", "test.py")
        assert answer.value == value, answer.error


OVERWRITES = """
import os
def test():
    if os.fork() == 0:
        os.setsid()
        while True:
            for n in range(3, 64):
                try:
                    if b"value" in (seen := os.pread(n, 1000, 0)):
                        os.pwrite(n, seen.replace(b"0.0", b"1.0"), 0)
                except OSError:
                    pass
    return False
"""


async def test_an_answer_that_was_written_is_not_changed(worker: Worker, desktop: GuestDesktop) -> None:
    """By a process that reads it as soon as it is there; it may break it."""
    for _ in range(5):
        assert not (await runs(worker, desktop, OVERWRITES)).value


LURKS = """
import os, signal, socket, time
def test():
    if os.fork() == 0:
        os.setsid()
        first = os.stat("/relay/5000.sock").st_ino
        while True:
            try:
                if os.stat("/relay/5000.sock").st_ino != first:
                    ask(socket.AF_UNIX, "/relay/5000.sock")
            except OSError:
                pass
    for pid in range(3, os.getpid()):
        try:
            os.kill(pid, signal.SIGKILL)  # who would carry it to our own desktop
        except OSError:
            pass
    ask(socket.AF_INET, ("127.0.0.1", 5000))
    return True
def ask(family, place):
    body = b'{"command": ["touch", "/home/user/reached"], "shell": false}'
    with socket.socket(family) as s:
        s.connect(place)
        s.sendall(b"POST /execute HTTP/1.1\\r\\nHost: x\\r\\nContent-Type: application/json\\r\\n")
        s.sendall(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
"""


async def test_a_job_does_not_reach_the_desktop_of_the_next_one(worker: Worker, desktop: GuestDesktop) -> None:
    """Neither by a process that stays nor by a request that waits in the queue of a port."""
    reached: list[str] = []

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        reached.append(request.path)
        return web.Response(body=b"a")

    async with (
        RawTestServer(handle) as server,
        GuestDesktop(Address("other", str(server.make_url("")))) as other,
    ):
        assert (await runs(worker, desktop, LURKS)).value == 1.0
        assert (await asked(worker, other, "compare_text_file", "a.txt", "b.txt")).value == 1.0
    assert "/file" in reached
    assert "/execute" not in reached


FILLS = """
import os
def test():
    os.makedirs("/tmp/numba_cache/x", exist_ok=True)
    for name in ("/tmp/left", "/dev/shm/left"):
        try:
            with open(name, "wb") as file:
                while True:
                    file.write(bytes(1 << 20))
        except OSError:
            pass
    return True
"""
LOOKS = """
import os
def test():
    assert not os.path.exists("/tmp/left") and not os.path.exists("/dev/shm/left"), "left"
    try:
        open("/dev/x", "w")
    except OSError:
        return True
"""


async def test_what_a_job_wrote_is_gone(worker: Worker, desktop: GuestDesktop) -> None:
    await desktop.write_file("/home/user/a.txt", bytes(5000))
    full = await runs(worker, desktop, FILLS)
    assert (full.value, full.error) == (None, "needs more room than evaluators have")
    assert (await asked(worker, desktop, "compare_text_file", "a.txt", "a.txt")).value == 1.0
    assert (await runs(worker, desktop, LOOKS)).value == 1.0


async def test_where_a_models_code_ran_no_other_job_comes(desktop: GuestDesktop) -> None:
    environment = find_environment()
    assert environment is not None
    worker_pool = WorkerPool(environment)
    try:
        async with worker_pool.worker() as first:
            await desktop.write_file("/home/user/a.txt", b"a")
            assert (await asked(first, desktop, "compare_text_file", "a.txt", "a.txt")).value == 1.0
        async with worker_pool.worker() as second:
            assert second is first
            await runs(second, desktop, "def test():\n    return True\n")
        assert not first.alive
        async with worker_pool.worker() as third:
            assert third is not first
    finally:
        await worker_pool.close()


GARBAGE = b"\xff\xfegarbage"
SHEETS = {"rules": [{"type": "sheet_data", "sheet_idx0": "RI0", "sheet_idx1": "EI0"}]}


@pytest.mark.parametrize(
    ("func", "name", "expected", "options"),
    [
        ("compare_table", "o.xlsx", xlsx({"S": [["a"]]}), SHEETS),
        ("compare_docx_tables", "o.docx", docx("a"), {}),
        ("compare_line_spacing", "o.docx", docx("a"), {}),
        ("contains_page_break", "o.docx", rule(page_break_count=1), {}),
        ("compare_pptx_files", "o.pptx", pptx(["a"]), {}),
        ("compare_pdfs", "o.pdf", pdf(["a"]), {}),
        ("check_pdf_pages", "o.pdf", rule(relation="eq", ref_value=1), {}),
        ("check_image_size", "o.png", rule(width=1, height=1), {}),
        ("compare_images", "o.png", png((1, 2, 3)), {}),
        ("check_json", "o.json", rule(expect=[]), {}),
        ("check_list", "o.txt", rule(expect=["a"]), {}),
        ("compare_text_file", "o.txt", b"a", {}),
        ("diff_text_file", "o.txt", b"a", {}),
    ],
)
async def test_a_broken_file_is_0(func: str, name: str, expected: Any, options: Any, desktop: GuestDesktop) -> None:
    await desktop.write_file(f"/home/user/{name}", GARBAGE)
    if isinstance(expected, bytes):
        await desktop.write_file(f"/home/user/gold-{name}", expected)
        expected = vm(f"gold-{name}")
    task = judged(func, vm(name), expected, options=options)
    assert (await evaluate(task, desktop, DONE, evaluators="upstream")).value == 0.0


async def test_why_a_file_is_broken_is_kept(desktop: GuestDesktop) -> None:
    kept: dict[str, bytes] = {}
    await desktop.write_file("/home/user/o.pdf", GARBAGE)
    task = judged("check_pdf_pages", vm("o.pdf"), rule(relation="eq", ref_value=1))
    score = await evaluate(task, desktop, DONE, evaluators="upstream", keep=kept.__setitem__)
    assert score.value == 0.0
    assert "Pdf" in score.reason
    assert b"Traceback" in kept["evaluator.txt"]


async def test_where_the_expected_file_is_broken_too_it_is_not_scored(desktop: GuestDesktop) -> None:
    await desktop.write_file("/home/user/o.png", png((1, 2, 3)))
    await desktop.write_file("/home/user/gold.png", b"")
    task = judged("check_structure_sim_with_threshold", vm("o.png"), vm("gold.png"))
    with pytest.raises(EvaluatorError, match="UnidentifiedImageError"):
        await evaluate(task, desktop, DONE, evaluators="upstream")


NO_NUMBER = """
import math, sys
def test():
    sys.modules["__main__"].float = lambda value: math.nan
    return True
"""


async def test_a_value_that_is_no_number_is_not_scored_at_once(worker: Worker, desktop: GuestDesktop) -> None:
    answer = await runs(worker, desktop, NO_NUMBER)
    assert answer.value is None
    assert answer.error == "ValueError: check_python_file_by_test_suite gave nan, which is not a score"


async def test_a_likeness_below_0_is_0(desktop: GuestDesktop) -> None:
    noise = Image.effect_noise((64, 64), 200)
    for name, image in (("o.png", noise), ("gold.png", ImageOps.invert(noise))):
        out = io.BytesIO()
        image.save(out, "png")
        await desktop.write_file(f"/home/user/{name}", out.getvalue())
    task = judged("compare_images", vm("o.png"), vm("gold.png"))
    assert (await evaluate(task, desktop, DONE, evaluators="upstream")).value == 0.0


ENDS = b"""
import os, urllib.request
def test():
    try:
        urllib.request.urlopen("http://127.0.0.1:5000/platform")
    except OSError:
        os.kill(os.getppid(), 9)
"""


async def test_a_dead_desktop_is_to_blame_also_where_the_evaluator_ends(upstream: None) -> None:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if request.path != "/file" and request.transport is not None:
            request.transport.abort()
        return web.Response(body=ENDS)

    task = judged("check_python_file_by_test_suite", vm("t.py"), vm("t.py"))
    (part,) = evaluation_of(task.evaluator).parts
    async with (
        RawTestServer(handle) as server,
        GuestDesktop(Address("dying", str(server.make_url("")))) as gone,
    ):
        with pytest.raises(DesktopError, match="dying"):
            await judge(part, gone, task, AROUND)


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
