"""A real browser: plays a film and says how that went; opens a page and does there what a person would."""

from __future__ import annotations

import asyncio
import http.server
import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
_PAGE = b"""<!doctype html><video muted src="film.mp4"></video><script>
const film = document.querySelector("video"), said = {};
const tell = () => fetch("/said", {method: "POST", body: JSON.stringify(said)});
film.onerror = () => { said.error = film.error.message; tell(); };
film.onloadeddata = () => {
  Object.assign(said, {width: film.videoWidth, height: film.videoHeight, duration: film.duration});
  film.requestVideoFrameCallback(look);
  film.currentTime = film.duration - 0.1;
};
// "seeked" may come before the picture does: only a frame callback says which picture is there to be drawn.
const look = (now, frame) => {
  if (frame.mediaTime == 0) return film.requestVideoFrameCallback(look);
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [film.videoWidth, film.videoHeight];
  const pen = canvas.getContext("2d");
  pen.drawImage(film, 0, 0);
  said.last = Array.from(pen.getImageData(10, 10, 1, 1).data.slice(0, 3));
  film.currentTime = 0;
  film.ontimeupdate = () => {
    if (film.seeking || film.currentTime < 0.1 || film.currentTime > film.duration - 0.1) return;
    film.ontimeupdate = null;
    said.played = true;
    tell();
  };
  film.loop = true;
  film.play();
};
</script>"""


def played_by_chromium(path: Path, folder: Path) -> dict[str, Any]:
    """Its size, length, the colour at 10,10 of its last picture, and whether it played; or the error."""
    said: queue.Queue[dict[str, Any]] = queue.Queue()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            film = self.path == "/film.mp4"
            body = path.read_bytes() if film else _PAGE if self.path == "/" else b""
            start = self.headers["Range"]  # without ranges a browser cannot seek
            first = int(start.removeprefix("bytes=").partition("-")[0]) if start else 0
            self.send_response(206 if start else 200)
            self.send_header("Content-Type", "video/mp4" if film else "text/html")
            self.send_header("Accept-Ranges", "bytes")
            if start:
                self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
            self.send_header("Content-Length", str(len(body) - first))
            self.end_headers()
            self.wfile.write(body[first:])

        def do_POST(self) -> None:
            said.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}",
                   "--autoplay-policy=no-user-gesture-required", "--remote-debugging-port=0",
                   f"http://127.0.0.1:{server.server_port}/"]  # fmt: skip
        nowhere = subprocess.DEVNULL
        browser = subprocess.Popen(command, stdout=nowhere, stderr=nowhere, start_new_session=True)
        try:
            return said.get(timeout=80)
        finally:
            os.killpg(browser.pid, signal.SIGKILL)
            browser.wait()
            server.shutdown()
            thread.join()


def ask_page(page: Path, expressions: Sequence[str], folder: Path, *, width: int = 1280) -> list[Any]:
    """Open a file in a window of that width and evaluate expressions there, one after the other; promises are awaited.

    Whatever the page throws, or is refused by its own policy, fails.
    """
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}",
               "--remote-debugging-port=0", f"--window-size={width},900", "about:blank"]  # fmt: skip
    browser = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert browser.stderr is not None
        said = next(line for line in browser.stderr if "DevTools listening on" in line)
        port = said.rpartition(":")[2].partition("/")[0]
        return asyncio.run(asyncio.wait_for(_ask(f"http://127.0.0.1:{port}/json", page, expressions, width), 80))
    finally:
        os.killpg(browser.pid, signal.SIGKILL)
        browser.communicate()


async def _ask(tabs: str, page: Path, expressions: Sequence[str], width: int) -> list[Any]:
    async with aiohttp.ClientSession() as session:
        async with session.get(tabs) as answer:
            tab = next(each for each in await answer.json() if each["type"] == "page")
        async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            calls: list[tuple[str, dict[str, Any]]] = [
                ("Log.enable", {}), ("Runtime.enable", {}), ("Page.enable", {}),
                ("Emulation.setDeviceMetricsOverride", size), ("Page.navigate", {"url": page.as_uri()}),
            ]  # fmt: skip
            troubles: list[str] = []
            for number, (method, params) in enumerate(calls):
                await _call(socket, number, method, params, troubles)
            loaded = "new Promise((on) => document.readyState === 'complete' ? on(1) : onload = () => on(1))"
            values = []
            for number, expression in enumerate([loaded, *expressions], len(calls)):
                params = {"expression": expression, "awaitPromise": True, "returnByValue": True}
                values.append(await _call(socket, number, "Runtime.evaluate", params, troubles))
            assert troubles == []
            return [each["result"].get("value") for each in values[1:]]


async def _call(
    socket: aiohttp.ClientWebSocketResponse, number: int, method: str, params: dict[str, Any], troubles: list[str]
) -> dict[str, Any]:
    await socket.send_json({"id": number, "method": method, "params": params})
    while True:
        told = await socket.receive_json()
        if told.get("method") == "Runtime.exceptionThrown":
            troubles.append(str(told["params"]["exceptionDetails"]))
        elif told.get("method") == "Log.entryAdded" and "Security" in told["params"]["entry"]["text"]:
            troubles.append(told["params"]["entry"]["text"])
        elif told.get("id") == number:
            assert "exceptionDetails" not in told["result"], told
            return dict(told["result"])
