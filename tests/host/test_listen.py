"""Where a service listens: what people write, whose socket it is, and who is at its other end."""

from __future__ import annotations

import asyncio
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from deskroll.errors import InputError
from deskroll.host.listen import Listen, open_listener, watch_peer

CONNECT = (
    "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print('up', flush=True); input()"
)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("unix:/tmp/a", Listen(path="/tmp/a")),
        ("127.0.0.1:80", Listen(host="127.0.0.1", port=80)),
        ("http://host:7000/", Listen(host="host", port=7000)),
        ("[::1]:7000", Listen(host="::1", port=7000)),
    ],
)
def test_what_people_write_is_read(text: str, read: Listen) -> None:
    assert Listen.parse(text) == read
    assert Listen.parse(str(read)) == read


@pytest.mark.parametrize("text", ["", "unix:", "host", ":80", "host:65536", "host:x", "unix:/" + "x" * 200])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="write unix:PATH"):
        Listen.parse(text)


def test_a_path_in_use_says_what_to_do_instead(tmp_path: Path) -> None:
    at = Listen(path=str(tmp_path / "sock"))
    with open_listener(at, instead="go elsewhere"):
        assert stat.S_IMODE(Path(at.path).stat().st_mode) == 0o600
        with pytest.raises(InputError, match=r"sock already: go elsewhere"), open_listener(at, instead="go elsewhere"):
            pass
    assert not Path(at.path).exists()


async def test_the_end_of_the_process_at_the_other_end_is_seen(tmp_path: Path) -> None:
    gone = asyncio.Event()
    with (
        open_listener(Listen(path=str(tmp_path / "sock")), instead="") as listener,
        subprocess.Popen([sys.executable, "-c", CONNECT, str(tmp_path / "sock")], stdin=-1, stdout=-1) as process,
    ):
        assert process.stdout is not None and await asyncio.to_thread(process.stdout.readline) == b"up\n"
        connection, _ = listener.accept()
        with connection, watch_peer(connection, gone.set):
            assert not gone.is_set()
            process.kill()
            await asyncio.wait_for(gone.wait(), 30)


def test_a_connection_whose_other_end_cannot_be_seen_is_not_watched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp, watch_peer(None, pytest.fail), watch_peer(tcp, pytest.fail):
        pass
