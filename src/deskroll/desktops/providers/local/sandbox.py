"""What the inside of a local desktop looks like, and the few files of its own /etc.

As `host/bubblewrap.py` makes it. Inside: of /etc only what programs need to run, nothing that tells about the host's
users; home, /tmp and /run fresh and bounded; a loopback of its own, and nothing else unless the spec asks for the
network (`network.py`). Programs run as uid 1000, `user`, without any capability.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.providers.local.syscalls import RULES
from deskroll.host import bubblewrap
from deskroll.host.bubblewrap import UID, Command, Inside

USER, HOME, HOST_NAME = "user", "/home/user", "desktop"
RUN = f"/run/user/{UID}"
STATE = "/run/deskroll"
SHIMS = "/opt/deskroll"
LIFELINE = "/init"
"""A `cat` that nobody may read: the kernel lets no other program trace what runs an unreadable file."""
# Ignoring its children buries them: it is the parent of every process inside that has none any more.
FIRST_PROCESS = ("/bin/sh", "-c", f"echo up; exec env --ignore-signal=CHLD {LIFELINE} >/dev/null")
TERMINALS = 64
"""Pseudo-terminals that one desktop may have open."""

# What programs read from /etc: fonts, libraries, default applications, their own defaults. No users, keys or hosts.
_ETC = (
    "alternatives", "fonts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ssl/certs", "ca-certificates",
    "gtk-2.0", "gtk-3.0", "gtk-4.0", "xdg", "X11", "dbus-1", "at-spi2", "mime.types", "mailcap", "magic",
    "localtime", "timezone", "locale.alias", "locale.conf", "profile", "profile.d", "bash.bashrc", "inputrc",
    "terminfo", "libreoffice", "chromium", "chromium.d", "gimp", "vlc", "java", "java-17-openjdk", "python3",
    "python3.11", "python3.12", "python3.13", "perl", "papersize", "paperspecs", "default/locale", "pulse",
    "OpenCL", "drirc", "glvnd", "vulkan", "firefox", "firefox-esr", "thunderbird", "code", "skel", "vim",
    "nanorc", "wgetrc", "protocols", "services", "debian_version", "os-release", "lsb-release", "issue",
)  # fmt: skip
_SMALL = 16 * 1024 * 1024
_CACHES = ("/var/cache/fontconfig", "/var/lib/libreoffice", "/var/lib/xkb", "/var/lib/dpkg")


def command(desktop_id: str, spec: DesktopSpec, shims: str, name_server: str) -> Command:
    """The command that makes a desktop's sandbox, for a process that is the desktop's user already."""
    disk = spec.disk_mb * 1024 * 1024
    inside = Inside(
        host_name=HOST_NAME,
        folders={**_seen(f"/etc/{name}" for name in _ETC), **_seen(_CACHES), SHIMS: shims},
        rooms={"/etc": _SMALL, "/tmp": disk, "/dev/shm": disk, HOME: disk, "/run": _SMALL, RUN: disk, STATE: disk},  # noqa: S108
        work=HOME,
        # Nothing in /etc can be written but by root, which `sudo` makes of a program. A desktop has one user, who owns
        # the files too: a program that changes their modes first is not stopped, nor needs it to be for anybody else's
        # sake.
        modes={"/etc": "0555", "/tmp": "1777", "/dev/shm": "1777", HOME: "0755", "/run": "0755", LIFELINE: "0111"},  # noqa: S108
        closed=sorted({f"/etc/{name}".rpartition("/")[0] for name in _ETC} - {"/etc"}),
        files={LIFELINE: Path(shutil.which("cat") or "/bin/cat").read_bytes(), **_etc_files(desktop_id, name_server)},
        etc=(),
        processes=True,
        terminals=True,
        rules=RULES,
    )
    options = ["--as-pid-1", "--die-with-parent"]
    return bubblewrap.command(inside, FIRST_PROCESS, options=options, launched=False, needed_by="a local desktop")


def _seen(paths: Iterable[str]) -> dict[str, str]:
    return {path: str(Path(path).resolve()) for path in paths if Path(path).exists()}


def _etc_files(desktop_id: str, name_server: str) -> dict[str, bytes]:
    """The files of /etc that are the desktop's own; with `sudo`, and only so, its programs may change them."""
    resolver = {"/etc/resolv.conf": f"nameserver {name_server}\n"} if name_server else {}
    machine = hashlib.md5(desktop_id.encode(), usedforsecurity=False).hexdigest()
    texts = {
        "/etc/passwd": f"root:x:0:0:root:/root:/bin/bash\n{USER}:x:{UID}:{UID}:{USER}:{HOME}:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "/etc/group": f"root:x:0:\n{USER}:x:{UID}:\nnogroup:x:65534:\n",
        "/etc/hosts": f"127.0.0.1 localhost {HOST_NAME}\n::1 localhost\n",
        "/etc/hostname": f"{HOST_NAME}\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "/etc/shells": "/bin/sh\n/bin/bash\n",
        "/etc/machine-id": f"{machine}\n",
        **resolver,
    }
    return {path: text.encode() for path, text in texts.items()}


def environment(home: str, run: str, shims: str, spec: DesktopSpec) -> dict[str, str]:
    """Environment of everything that runs in a desktop, whether in a sandbox or not."""
    return {
        "HOME": home,
        "USER": USER,
        "LOGNAME": USER,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "PATH": f"{shims}/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:/usr/games",
        "PYTHONPATH": f"{shims}/site",
        "XDG_RUNTIME_DIR": run,
        "XDG_SESSION_TYPE": "x11",
        "XDG_CURRENT_DESKTOP": "openbox",
        "XAUTHORITY": f"{home}/.Xauthority",
        "DBUS_SESSION_BUS_ADDRESS": f"unix:path={run}/bus",
        # What makes GTK and Qt programs and LibreOffice show themselves on the accessibility bus.
        "GTK_MODULES": "gail:atk-bridge",
        "NO_AT_BRIDGE": "0",
        "QT_ACCESSIBILITY": "1",
        "QT_LINUX_ACCESSIBILITY_ALWAYS_ON": "1",
        "GNOME_ACCESSIBILITY": "1",
        "SAL_USE_VCLPLUGIN": "gtk3",
        "SCREEN_WIDTH": str(spec.width),
        "SCREEN_HEIGHT": str(spec.height),
    }
