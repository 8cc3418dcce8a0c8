"""OSWorld's guest protocol, as programs written for OSWorld's own server use it: over TCP, with plain `requests`."""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import requests
from PIL import Image

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.guest.relay import relay_guest
from deskroll.desktops.providers.local.provider import LocalProvider
from tests.waiting import eventually


class Server:
    """A guest on a TCP port, for clients that know nothing of deskroll."""

    def __init__(self, port: int, desktop: GuestDesktop) -> None:
        self.port, self.desktop = port, desktop
        self.url = f"http://127.0.0.1:{port}"

    async def call(self, method: str, path: str, **kwargs: Any) -> requests.Response:
        return await asyncio.to_thread(requests.request, method, self.url + path, timeout=60, **kwargs)

    async def get(self, path: str, **kwargs: Any) -> requests.Response:
        return await self.call("GET", path, **kwargs)

    async def post(self, path: str, **kwargs: Any) -> requests.Response:
        return await self.call("POST", path, **kwargs)


@pytest_asyncio.fixture(scope="module")
async def server(provider: LocalProvider) -> AsyncIterator[Server]:
    address = await provider.boot(DesktopSpec(width=1024, height=768))
    try:
        async with relay_guest(address, "127.0.0.1", 0) as port, GuestDesktop(address) as desktop:
            yield Server(port, desktop)
    finally:
        await provider.stop(address.id)


async def open_window(server: Server, command: list[str], name: str) -> None:
    await server.post("/setup/launch", json={"command": command})

    async def there() -> bool:
        return any(name.lower() in f"{w.title} {w.wm_class}".lower() for w in await server.desktop.windows())

    await eventually(there, f"a window {name!r} is open")


# --- OSWorld's own client -------------------------------------------------------------------------------------------


async def test_osworlds_own_controller_works_unchanged(server: Server, tmp_path: Path) -> None:
    controller_module = pytest.importorskip("desktop_env.controllers.python", reason="make setup installs desktop-env")
    controller = controller_module.PythonController(vm_ip="127.0.0.1", server_port=server.port)
    video = tmp_path / "recording.mp4"

    def talk() -> None:
        assert controller.get_vm_platform() == "Linux"
        assert controller.get_vm_screen_size() == {"width": 1024, "height": 768}
        assert Image.open(io.BytesIO(controller.get_screenshot())).size == (1024, 768)
        assert controller.get_accessibility_tree().startswith("<desktop-frame")
        assert controller.get_terminal_output() is None
        assert controller.get_vm_desktop_path() == "/home/user/Desktop"
        assert controller.get_vm_directory_tree("/home/user/Desktop") == {
            "type": "directory", "name": "Desktop", "children": [],
        }  # fmt: skip
        assert controller.get_file("/etc/hostname") == b"desktop\n"
        controller.start_recording()
        controller.execute_action({"action_type": "MOVE_TO", "parameters": {"x": 400, "y": 300}})
        assert controller.execute_python_command("print(pyautogui.position())")["output"] == "Point(x=400, y=300)\n"
        controller.execute_action({"action_type": "CLICK", "x": 200, "y": 100, "button": "left", "num_clicks": 2})
        controller.execute_action({"action_type": "SCROLL", "parameters": {"dx": 0, "dy": -3}})
        controller.execute_action({"action_type": "HOTKEY", "parameters": {"keys": ["ctrl", "alt"]}})
        controller.execute_action("WAIT")
        assert controller.run_python_script("print(6 * 7)")["output"] == "42\n"
        assert controller.run_bash_script("echo out; echo err >&2; exit 3") == {
            "status": "error", "output": "out\nerr\n", "error": "", "returncode": 3,
        }  # fmt: skip
        controller.end_recording(str(video))

    await asyncio.to_thread(talk)
    assert await server.desktop.cursor_position() == (200, 100)
    assert b"ftyp" in video.read_bytes()[:32]


async def test_osworlds_controller_types_into_a_program(server: Server) -> None:
    controller_module = pytest.importorskip("desktop_env.controllers.python", reason="make setup installs desktop-env")
    controller = controller_module.PythonController(vm_ip="127.0.0.1", server_port=server.port)
    await open_window(server, ["xterm", "-T", "typing"], "typing")
    await server.post("/setup/activate_window", json={"window_name": "typing"})
    await asyncio.to_thread(
        controller.execute_action, {"action_type": "TYPING", "parameters": {"text": "echo hi > typed.txt\n"}}
    )

    async def typed() -> bool:
        return (await server.post("/file", data={"file_path": "/home/user/typed.txt"})).content == b"hi\n"

    await eventually(typed, "what was typed has run")
    await server.post("/setup/close_window", json={"window_name": "typing"})


# --- the endpoints by raw HTTP --------------------------------------------------------------------------------------


async def test_screenshot(server: Server) -> None:
    answer = await server.get("/screenshot")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "image/png"
    assert Image.open(io.BytesIO(answer.content)).size == (1024, 768)


@pytest.mark.parametrize("path", ["/execute", "/setup/execute"])
async def test_execute(server: Server, path: str) -> None:
    answer = await server.post(path, json={"command": ["sh", "-c", "echo out; echo err >&2; exit 4"], "shell": False})
    assert answer.status_code == 200
    assert answer.json() == {"status": "success", "output": "out\n", "error": "err\n", "returncode": 4}
    assert (await server.post(path, json={"command": "echo a | tr a b", "shell": True})).json()["output"] == "b\n"
    assert (await server.post(path, json={"command": "echo $HOME", "shell": "true"})).json()["output"] == "/home/user\n"
    assert (await server.post(path, json={"command": "echo 'one word' two"})).json()["output"] == "one word two\n"
    assert (await server.post(path, json={"command": ["ls", "~/"]})).json()["returncode"] == 0


async def test_execute_of_something_that_is_not_there(server: Server) -> None:
    answer = await server.post("/execute", json={"command": ["no-such-program"]})
    assert answer.status_code == 500
    assert answer.json()["status"] == "error"
    assert "no-such-program" in answer.json()["message"]


@pytest.mark.parametrize("path", ["/execute_with_verification", "/setup/execute_with_verification"])
async def test_execute_with_verification(server: Server, path: str) -> None:
    done = await server.post(path, json={
        "command": "(sleep 0.3; touch /tmp/made) &", "shell": True,
        "verification": {"command_success": "test -e /tmp/made"}, "max_wait_time": 20, "check_interval": 0.1,
    })  # fmt: skip
    assert (done.status_code, done.json()["verification"]) == (200, "passed")
    await server.post("/execute", json={"command": ["rm", "/tmp/made"]})
    failed = await server.post(path, json={
        "command": ["true"], "verification": {"window_exists": "no such window"}, "max_wait_time": 0.2,
    })  # fmt: skip
    assert (failed.status_code, failed.json()["status"]) == (500, "verification_failed")
    plain = await server.post(path, json={"command": ["echo", "x"]})
    assert plain.json() == {"status": "success", "output": "x\n", "error": "", "returncode": 0}


async def test_run_python(server: Server) -> None:
    answer = (await server.post("/run_python", json={"code": "import sys; print('中文'); sys.exit(2)"})).json()
    assert answer == {
        "status": "error", "message": "中文\n\nProcess exited with code 2", "need_more": False, "output": "中文\n",
        "error": "Process exited with code 2", "return_code": 2,
    }  # fmt: skip
    assert (await server.post("/run_python", json={})).status_code == 400


async def test_run_bash_script(server: Server) -> None:
    answer = await server.post("/run_bash_script", json={"script": "pwd\nexit 0", "timeout": 30, "working_dir": "/tmp"})
    assert answer.json() == {"status": "success", "output": "/tmp\n", "error": "", "returncode": 0}
    missing = await server.post("/run_bash_script", json={"script": "pwd", "working_dir": "/nowhere"})
    assert missing.status_code == 400
    slow = await server.post("/run_bash_script", json={"script": "sleep 100", "timeout": 0.3})
    assert slow.status_code == 500
    assert "timed out" in slow.json()["output"]


async def test_files_go_in_and_out(server: Server) -> None:
    data = bytes(range(256)) * 4000
    for path in ("/home/user/in/side/数据.bin", "~/home.bin", "$HOME/var.bin", "relative.bin"):
        answer = await server.post("/setup/upload", data={"file_path": path}, files={"file_data": ("name", data)})
        assert answer.text == f"File Uploaded: {len(data)} bytes"
        assert (await server.post("/file", data={"file_path": path})).content == data
    missing = await server.post("/file", data={"file_path": "/no/such/file"})
    assert (missing.status_code, missing.json()) == (404, {"error": "File not found"})


async def test_list_directory(server: Server) -> None:
    await server.post(
        "/execute",
        json={"command": "mkdir -p /tmp/d/sub; echo x > /tmp/d/sub/f; ln -s /tmp/d /tmp/d/loop", "shell": True},
    )
    tree = (await server.post("/list_directory", json={"path": "/tmp/d"})).json()["directory_tree"]
    assert tree["type"] == "directory"
    children = {child["name"]: child for child in tree["children"]}
    assert children["sub"]["children"] == [{"type": "file", "name": "f"}]
    assert children["loop"] == {"type": "file", "name": "loop"}
    assert (await server.post("/list_directory", json={"path": "/etc/hostname"})).status_code == 400


async def test_windows(server: Server) -> None:
    await open_window(server, ["xterm", "-T", "first window"], "first window")
    await open_window(server, ["xterm", "-T", "second window"], "second window")
    assert (
        await server.post("/setup/activate_window", json={"window_name": "first window", "strict": True})
    ).status_code == 200
    active = [window.title for window in await server.desktop.windows() if window.active]
    assert active == ["first window"]
    assert (await server.post("/window_size", data={"app_class_name": "xterm"})).json().keys() == {"width", "height"}
    for name in ("first window", "second window"):
        assert (await server.post("/setup/close_window", json={"window_name": name})).status_code == 200

    async def closed() -> bool:
        return not any("window" in window.title for window in await server.desktop.windows())

    await eventually(closed, "both windows are closed")
    assert (await server.post("/setup/activate_window", json={"window_name": "first window"})).status_code == 404


async def test_open_file_waits_for_the_window_and_no_longer(server: Server) -> None:
    await server.post(
        "/setup/upload", data={"file_path": "/home/user/letter.txt"}, files={"file_data": ("x", b"Dear reader")}
    )
    answer = await server.post("/setup/open_file", json={"path": "/home/user/letter.txt"})
    assert (answer.status_code, answer.text) == (200, "File opened and window activated successfully")
    active = [window.title for window in await server.desktop.windows() if window.active]
    assert "letter.txt" in active[0]
    assert (await server.post("/setup/open_file", json={"path": "/no/such/file"})).status_code == 404
    await server.post("/setup/close_window", json={"window_name": "letter.txt"})


async def test_wallpaper(server: Server) -> None:
    picture = io.BytesIO()
    Image.new("RGB", (64, 48), (200, 30, 40)).save(picture, "PNG")
    await server.post(
        "/setup/upload", data={"file_path": "/tmp/wall.png"}, files={"file_data": ("x", picture.getvalue())}
    )
    assert (await server.post("/wallpaper")).status_code == 404
    assert (await server.post("/setup/change_wallpaper", json={"path": "/tmp/wall.png"})).status_code == 200
    assert (await server.post("/wallpaper")).content == picture.getvalue()

    async def shown() -> bool:
        screen = Image.open(io.BytesIO((await server.get("/screenshot")).content))
        return screen.getpixel((1020, 764)) == (200, 30, 40)

    await eventually(shown, "the picture is behind the windows")
    assert (await server.post("/setup/change_wallpaper", json={"path": "/etc/hostname"})).status_code == 500


async def test_recording(server: Server) -> None:
    assert (await server.post("/end_recording")).status_code == 400
    assert (await server.post("/start_recording")).json()["status"] == "success"
    assert (await server.post("/start_recording")).status_code == 400
    video = await server.post("/end_recording")
    assert video.status_code == 200
    assert b"ftyp" in video.content[:32]


async def test_download_needs_a_network(server: Server) -> None:
    answer = await server.post("/setup/download_file", json={"url": "http://127.0.0.1:9/x", "path": "/tmp/x"})
    assert answer.status_code == 500
    assert "Failed to download" in answer.json()["message"]


async def test_terminal_and_platform(server: Server) -> None:
    assert (await server.get("/platform")).text == "Linux"
    assert (await server.get("/terminal")).json() == {"output": None, "status": "success"}
    assert (await server.get("/cursor_position")).json() == list(await server.desktop.cursor_position())


# --- bad requests ---------------------------------------------------------------------------------------------------

BAD: list[tuple[str, str, dict[str, Any], int, str]] = [
    ("POST", "/execute", {"data": b"{broken", "headers": {"Content-Type": "application/json"}}, 400, "not valid JSON"),
    ("POST", "/execute", {"data": b"\xff\xfe\x00"}, 400, "not valid JSON"),
    ("POST", "/execute", {"data": b"[1, 2]"}, 400, "Expected `object`"),
    ("POST", "/execute", {"json": {}}, 400, "command is empty"),
    ("POST", "/execute", {"json": {"command": 7}}, 400, "command"),
    ("POST", "/execute", {"json": {"command": ["a\0b"]}}, 400, "NUL"),
    ("POST", "/execute", {"json": {"command": "echo 'open"}}, 400, "cannot be split"),
    ("POST", "/execute", {"data": b"x" * (17 << 20)}, 413, "too large"),
    ("POST", "/execute", {"data": b'{"command":' + b"[" * 200_000}, 400, "command"),
    ("POST", "/run_python", {"json": {"code": 3}}, 400, "code"),
    ("POST", "/run_bash_script", {"json": {"script": ""}}, 400, "Script not supplied"),
    ("POST", "/run_bash_script", {"json": {"script": "x", "timeout": "soon"}}, 400, "timeout"),
    ("POST", "/file", {}, 400, "file_path is required"),
    ("POST", "/file", {"data": {"file_path": "/dev/zero"}}, 400, "not a regular file"),
    ("POST", "/file", {"data": {"file_path": "/home"}}, 400, "not a regular file"),
    ("POST", "/file", {"data": {"file_path": "a\0b"}}, 400, "NUL"),
    ("POST", "/file", {"data": {"file_path": "../../../../etc/shadow"}}, 404, "not found"),
    ("POST", "/setup/upload", {}, 400, "required"),
    ("POST", "/setup/upload", {"data": {"file_path": "/tmp/x"}}, 400, "required"),
    ("POST", "/setup/upload", {"data": {"file_path": ""}, "files": {"file_data": b"x"}}, 400, "required"),
    ("POST", "/setup/upload", {"data": {"file_path": "/usr/x"}, "files": {"file_data": b"x"}}, 500, "Read-only"),
    ("POST", "/setup/upload", {"data": {"file_path": "/tmp"}, "files": {"file_data": b"x"}}, 500, "folder"),
    ("POST", "/list_directory", {"json": {}}, 400, "path"),
    ("POST", "/window_size", {}, 400, "app_class_name is required"),
    ("POST", "/window_size", {"data": {"app_class_name": "nothing"}}, 404, "no window"),
    ("POST", "/setup/activate_window", {"json": {}}, 400, "window_name required"),
    ("POST", "/setup/open_file", {"json": {}}, 400, "Path not supplied"),
    ("POST", "/setup/change_wallpaper", {"json": {"path": "/no"}}, 404, "not found"),
    ("POST", "/setup/download_file", {"json": {"url": "x"}}, 400, "not supplied"),
    ("POST", "/start_recording?fps=0", {}, 400, "allowed: 1 to 30"),
    ("POST", "/step", {"json": {"actions": [{"type": "CLIKC"}]}}, 400, "Invalid value"),
    ("POST", "/step", {"json": {"actions": [{"type": "CLICK", "x": "a"}]}}, 400, r"actions[0].x"),
    ("POST", "/step", {"json": {"actions": [{"type": "DONE"}] * 201}}, 400, "at most 200"),
    ("POST", "/step", {"json": {"observe": {"image": "gif"}}}, 400, "png, jpeg"),
    (
        "POST",
        "/step",
        {"data": b'{"actions":[{"type":"TOOL_CALL","name":"x","arguments":' + b'{"a":' * 5000},
        400,
        "/step",
    ),
    ("POST", "/execute", {"json": {"command": "a\0b", "shell": True}}, 400, "NUL"),
    (
        "POST",
        "/setup/upload",
        {"data": b"--x\r\nbroken", "headers": {"Content-Type": "multipart/form-data; boundary=x"}},
        400,
        "multipart",
    ),
    ("GET", "/accessibility?in_flight=²", {}, 400, "1 to 1024"),
    ("GET", "/platform", {"headers": {"Origin": "http://page.example"}}, 403, "web pages"),
    ("POST", "/execute", {"json": {"command": ["true"]}, "headers": {"Host": "page.example"}}, 403, "other hosts"),
    ("GET", "/screenshot?image=gif", {}, 400, "png, jpeg"),
    ("GET", "/screenshot", {"headers": {"Deskroll-Timeout": "soon"}}, 400, "number of seconds"),
    ("GET", "/forward/99999", {}, 400, "1 to 65535"),
    ("GET", "/forward/9", {}, 502, "nothing answers on port 9"),
    ("GET", "/nothing", {}, 404, "no endpoint /nothing"),
    ("GET", "/execute", {}, 405, "takes POST"),
    ("DELETE", "/screenshot", {}, 405, "not DELETE"),
]


@pytest.mark.parametrize(("method", "path", "kwargs", "status", "words"), BAD, ids=lambda value: str(value)[:40])
async def test_bad_requests(
    server: Server, method: str, path: str, kwargs: dict[str, Any], status: int, words: str
) -> None:
    answer = await server.call(method, path, **kwargs)
    assert answer.status_code == status, answer.text[:300]
    body = answer.json()
    assert words.lower() in json.dumps(body, ensure_ascii=False).lower()
    assert (await server.get("/platform")).text == "Linux"


async def test_nonsense_on_the_wire(server: Server) -> None:
    for nonsense in (
        b"\x00\xff\x16\x03\x01" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        try:
            writer.write(nonsense)
            await writer.drain()
            answer = await asyncio.wait_for(reader.read(100), 30)
        except ConnectionError:  # it was closed before all of it was read
            answer = b""
        assert answer == b"" or b" 400 " in answer
        writer.close()
    assert (await server.get("/platform")).text == "Linux"


async def test_a_wrong_token_is_refused(provider: LocalProvider) -> None:
    address = await provider.boot(DesktopSpec(width=320, height=240), token="right")
    try:
        async with relay_guest(address, "127.0.0.1", 0) as port:
            url = f"http://127.0.0.1:{port}/platform"

            def status(headers: dict[str, str]) -> int:
                return requests.get(url, headers=headers, timeout=30).status_code

            assert await asyncio.to_thread(status, {}) == 401
            assert await asyncio.to_thread(status, {"Authorization": "Bearer wrong"}) == 401
            assert await asyncio.to_thread(status, {"Authorization": "Bearer right"}) == 200
        async with GuestDesktop(address) as desktop:
            await desktop.check()
    finally:
        await provider.stop(address.id)
