"""The nursery as its provider holds it: started, waited for, ended."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile

from deskroll.errors import BootError

READY_S = 90.0
"""The longest wait for its imports, on a machine under heavy load."""
_ENV = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TMPDIR")
"""All that it inherits: keys and tokens have no business near a desktop."""


class NurseryProcess:
    """The process that forks keepers, and the socket on which it is asked to."""

    def __init__(self) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the nursery)
        env = {name: os.environ[name] for name in _ENV if name in os.environ}
        # One BLAS thread: a process with threads must not fork, and nothing here multiplies matrices.
        env |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        module = "deskroll.desktops.providers.local.nursery"
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(theirs.fileno())], env=env, pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self._errors, start_new_session=True,
            )  # fmt: skip

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    async def ready(self) -> None:
        """Wait until it has imported everything."""
        self.control.setblocking(False)
        try:
            word = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self.control, 64), READY_S)
        except TimeoutError:
            raise BootError(f"the process that starts desktops did not come up within {READY_S:g} s") from None
        if not word:
            self._process.wait()
            self._errors.seek(0)
            words = self._errors.read().decode(errors="replace").strip()[-1000:]
            raise BootError(f"the process that starts desktops died: {words}")
        self.control.setblocking(True)

    async def close(self) -> None:
        """End it; it ends by itself when its socket closes."""
        self.control.close()
        try:
            await asyncio.to_thread(self._process.wait, 5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            self._errors.close()
