"""A bare X session for the driver's tests: Xvfb, a session bus, AT-SPI and openbox, as a desktop has them."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from Xlib.display import Display

from tests.waiting import wait_until


@dataclass
class XSession:
    name: str
    env: dict[str, str]
    framebuffer: Path
    home: Path
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            command, env=self.env, cwd=self.home, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self.children.append(child)
        return child

    def close(self) -> None:
        for child in reversed(self.children):
            # The whole group: AT-SPI's launcher has a bus daemon of its own.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        for child in self.children:
            child.wait()


def _start_server(framebuffer: Path) -> tuple[subprocess.Popen[bytes], str]:
    read, write = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-screen", "0", "1920x1080x24", "-fbdir", str(framebuffer), "-noreset"],
        pass_fds=[write], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    os.close(write)
    with os.fdopen(read) as pipe:
        return server, f":{pipe.readline().strip()}"


@pytest.fixture
def xsession(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[XSession]:
    for name in ("fb", "home", "run"):
        (tmp_path / name).mkdir(mode=0o700)
    # python-xlib wants the file to exist; a server without -auth lets everybody in.
    authority = tmp_path / "home" / ".Xauthority"
    authority.touch()
    monkeypatch.setenv("XAUTHORITY", str(authority))
    server, name = _start_server(tmp_path / "fb")
    env = {
        "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "DISPLAY": name, "HOME": str(tmp_path / "home"),
        "XDG_RUNTIME_DIR": str(tmp_path / "run"), "DBUS_SESSION_BUS_ADDRESS": f"unix:path={tmp_path}/run/bus",
        "GTK_MODULES": "gail:atk-bridge", "NO_AT_BRIDGE": "0", "GTK_A11Y": "atspi", "ACCESSIBILITY_ENABLED": "1",
    }  # fmt: skip
    session = XSession(name, env, tmp_path / "fb" / "Xvfb_screen0", tmp_path / "home", [server])
    try:
        session.start("dbus-daemon", "--session", "--nofork", f"--address={env['DBUS_SESSION_BUS_ADDRESS']}")
        wait_until((tmp_path / "run" / "bus").exists, "the session bus is there")
        session.start("/usr/libexec/at-spi-bus-launcher", "--launch-immediately", "--a11y=1")
        session.start("openbox", "--sm-disable")
        display = Display(name)
        atom = display.intern_atom("_NET_SUPPORTING_WM_CHECK")
        wait_until(lambda: display.screen().root.get_full_property(atom, 0), "openbox manages the display")
        display.close()
        yield session
    finally:
        session.close()
