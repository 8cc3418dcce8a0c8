"""Stands in for `vllm serve`: a real process with a real HTTP server on a unix socket, and a grandchild that survives.

What vLLM was seen to do, it does: the weights that it answers with are those of the folder that it was started on or
told to load; `/reset_prefix_cache` answers 200 also where it failed; EngineCore outlives a killed API process. STAND_IN
says how it misbehaves from the start; `POST /stand-in` sets a fault for later.
"""

import json
import os
import signal
import socketserver
import struct
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


def first_number(folder: str) -> float:
    """Of the weights in a folder."""
    data = next(Path(folder).glob("*model.safetensors")).read_bytes()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    return float(struct.unpack("<f", data[start : start + 4])[0])


class State:
    def __init__(self, folder: str, name: str) -> None:
        self.weights = first_number(folder)
        self.names = {name: None}
        self.fault = os.environ.get("STAND_IN", "")
        self.asked: list[str] = []
        self.answers = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: State

    def address_string(self) -> str:
        return "unix"

    def do_GET(self) -> None:
        if self.path == "/asked":
            return self.answer(self.state.asked)
        return self.answer({}, 503 if self.state.fault == "unhealthy" else 200)

    def do_POST(self) -> None:
        state, url = self.state, urlsplit(self.path)
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null")
        if url.path == "/stand-in":
            state.fault = body["fault"]
            state.asked.clear()
            return self.answer({})
        state.asked.append(self.path)
        if state.fault == f"500 {url.path}":
            return self.answer({"error": {"message": "it went wrong"}}, 500)
        if state.fault == f"die {url.path}":
            os.kill(os.getpid(), signal.SIGKILL)
        if url.path == "/v1/chat/completions":
            return self.chat(body)
        if url.path == "/collective_rpc" and state.fault != "idle reload":
            state.weights = first_number(body["kwargs"]["weights_path"])
        if url.path == "/reset_prefix_cache":
            held = state.fault == "held" and parse_qs(url.query).get("reset_running_requests") != ["true"]
            return self.answer({"success": not held})
        if url.path == "/v1/load_lora_adapter":
            state.names[body["lora_name"]] = first_number(body["lora_path"])
        if url.path == "/v1/unload_lora_adapter" and state.names.pop(body["lora_name"], None) is None:
            return self.answer({"error": {"message": "no such adapter"}}, 404)
        return self.answer(None)

    def chat(self, body: dict) -> None:
        state = self.state
        if body["model"] not in state.names:
            return self.answer({"error": {"message": f"no model {body['model']}"}}, 404)
        state.answers += 1
        shift = state.names[body["model"]] or 0.0
        noise = 0.001 * (state.answers % 3) if state.fault.startswith("noise") else 0.0
        values = [-1.0 - state.weights - shift - noise] * 3
        choice = {"token_ids": [5, 6, 7], "logprobs": {"content": [{"logprob": value} for value in values]}}
        if state.fault == "no ids":
            choice["token_ids"] = None
        return self.answer({"choices": [choice], "prompt_logprobs": [None, {"4": {"logprob": values[0] / 2}}]})

    def answer(self, body: object, status: int = 200) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


def engine() -> None:
    """The part that survives: deaf to SIGTERM, in a session of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("EngineCore is up", flush=True)
    while True:
        signal.pause()


def serve(words: list[str]) -> None:
    folder, flags = words[0], dict(word.removeprefix("--").partition("=")[::2] for word in words[1:])
    core = subprocess.Popen(
        [sys.executable, __file__, "engine"], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    print(core.stdout.readline(), end="", flush=True)
    fault = os.environ.get("STAND_IN", "")
    if fault == "dies":
        print("(Worker pid=7) ERROR 11-18 01:56:32 [worker.py:953] ValueError: 7 of 12 GiB are free", flush=True)
        print("\n".join(f"line {n}" for n in range(40)), "\nRuntimeError: out of memory", flush=True)
        sys.exit(3)
    if fault == "no compiler":
        print("(Worker pid=7) ERROR [x.py:1] InductorError: InvalidCxxCompiler: No working C++ compiler", flush=True)
        sys.exit(1)
    if fault == "silent":
        signal.pause()
    Handler.state = State(folder, flags["served-model-name"])
    server = Server(flags["uds"], Handler)
    stop = signal.SIG_IGN if fault == "deaf" else lambda *_: threading.Thread(target=server.shutdown).start()
    signal.signal(signal.SIGTERM, stop)
    server.serve_forever()


if __name__ == "__main__":
    engine() if sys.argv[1] == "engine" else serve(sys.argv[2:])
