"""Serves the pages that lie beside it on 127.0.0.1:8000, and keeps the forms that are sent in `sent.json`.

Each form is an object: `form`, the address it was sent to, and its fields, several values of one as a list. It is in
the file before the browser gets its answer.
"""

import html
import json
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qs

HERE = Path(__file__).resolve().parent
SENT = HERE / "sent.json"
ANSWER = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Sent</title>
<link rel="stylesheet" href="/style.css"><h1>Thank you</h1><p>We have received your form.</p>{rows}"""
writing = Lock()


class Handler(SimpleHTTPRequestHandler):
    """A page for every file; anything may be sent to any address."""

    def do_POST(self) -> None:
        """Keep a form and say thanks."""
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        fields = {name: values[0] if len(values) == 1 else values for name, values in parse_qs(sent).items()}
        with writing:
            before = json.loads(SENT.read_text()) if SENT.exists() else []
            part = SENT.with_suffix(".part")
            part.write_text(json.dumps([*before, {"form": self.path, **fields}]))
            part.rename(SENT)
        rows = "".join(f"<p>{html.escape(f'{name}: {value}')}</p>" for name, value in fields.items())
        self.answer(ANSWER.format(rows=rows).encode())

    def answer(self, page: bytes) -> None:
        """Send a page that is no file."""
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def end_headers(self) -> None:
        """Let files that are lists be saved instead of shown."""
        if self.path.endswith(".csv"):
            self.send_header("Content-Disposition", "attachment")
        super().end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", 8000), partial(Handler, directory=str(HERE))).serve_forever()
