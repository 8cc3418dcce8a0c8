"""What there is on the host to be found by code in a sandbox, and how it is told where to look.

A file, a key in the kernel's session keyring, a process with a key in its environment, and services on every kind of
socket. Whoever gets at any of it has broken out.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import re
import secrets
import socket
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from deskroll.host.keyring import leave_session_keyring

SECRET = f"sk-test-{secrets.token_hex(8)}"

# By number, on (x86_64, aarch64); not taken from what is tested. As the kernel's own headers have them.
_CALLS = {
    "ACCT": (163, 89), "ADDKEY": (248, 217), "BPF": (321, 280), "CLOCKSETTIME": (227, 112), "DELETEMODULE": (176, 106),
    "FINITMODULE": (313, 273), "FSCONFIG": (431, 431), "FSMOUNT": (432, 432), "FSOPEN": (430, 430),
    "FSPICK": (433, 433), "INITMODULE": (175, 105), "IOURINGENTER": (426, 426), "IOURINGREGISTER": (427, 427),
    "IOURINGSETUP": (425, 425), "KEXECFILELOAD": (320, 294), "KEXECLOAD": (246, 104), "KEYCTL": (250, 219),
    "MOUNTSETATTR": (442, 442), "MOVEMOUNT": (429, 429), "OPENBYHANDLE": (304, 265), "OPENTREE": (428, 428),
    "OPENTREEATTR": (467, 467), "PERF": (298, 241), "PIDFDGETFD": (438, 438), "PIDFDOPEN": (434, 434),
    "PIVOTROOT": (155, 41), "QUOTACTL": (179, 60), "QUOTACTLFD": (443, 443), "REBOOT": (169, 142),
    "REQUESTKEY": (249, 218), "SETTIMEOFDAY": (164, 170), "SWAPOFF": (168, 225), "SWAPON": (167, 224),
    "SYSLOG": (103, 116), "USERFAULTFD": (323, 282),
}  # fmt: skip
CALLS: Mapping[str, int] = {name: each[platform.machine() == "aarch64"] for name, each in _CALLS.items()}
_SESSION = -3


@dataclass
class Prey:
    """What is there."""

    folder: Path
    port: int = 0
    abstract: str = field(default_factory=lambda: f"deskroll-{secrets.token_hex(4)}")
    key: str = field(default_factory=lambda: f"deskroll-{secrets.token_hex(4)}")
    """What its key is called; the key itself is `SECRET`."""
    pid: int = 0
    visits: list[str] = field(default_factory=list)

    @property
    def canary(self) -> Path:
        return self.folder / "canary"

    def fill(self, code: str, **more: object) -> str:
        """An attack with what it aims at: words in capitals between @ are replaced."""
        words = CALLS | {
            "PORT": self.port, "SOCKET": self.folder / "s", "ABSTRACT": self.abstract, "CANARY": self.canary,
            "PID": self.pid, "KEY": self.key, **more,
        }  # fmt: skip
        return re.sub("@([A-Z]+)@", lambda match: str(words[match[1]]), code)

    def require_untouched(self) -> None:
        assert self.visits == []
        assert self.canary.read_text() == SECRET
        assert sorted(path.name for path in self.folder.iterdir()) == ["canary", "s"]


def keep_key(name: str, payload: str) -> None:
    """Put a key into a session keyring of this process's own, which what it starts inherits."""
    leave_session_keyring()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(CALLS["ADDKEY"], b"user", name.encode(), payload.encode(), len(payload), _SESSION) < 0:
        raise OSError(ctypes.get_errno(), "no key can be kept here")


@asynccontextmanager
async def put_out(folder: Path) -> AsyncIterator[Prey]:
    """All of it, for as long as this is open."""
    prey = Prey(folder)
    prey.canary.write_text(SECRET)
    keep_key(prey.key, SECRET)

    async def visited(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        prey.visits.append("somebody came")
        writer.close()

    async with AsyncExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(["sleep", "infinity"], env=dict(os.environ, OPENAI_API_KEY=SECRET))
        )
        stack.callback(process.kill)
        prey.pid = process.pid
        abstract = socket.socket(socket.AF_UNIX)
        abstract.bind(f"\0{prey.abstract}")
        tcp = await asyncio.start_server(visited, "127.0.0.1", 0)
        prey.port = tcp.sockets[0].getsockname()[1]
        servers = [tcp, await asyncio.start_unix_server(visited, folder / "s")]
        servers.append(await asyncio.start_unix_server(visited, sock=abstract))
        for server in servers:
            stack.push_async_callback(server.wait_closed)
            stack.callback(server.close)
        yield prey
