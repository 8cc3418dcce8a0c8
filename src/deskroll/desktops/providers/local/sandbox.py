"""What the inside of a local desktop looks like: bubblewrap's arguments, and the few files of its own /etc.

Inside: its own user, pid, network, ipc, host name and control-group namespaces; /usr read-only; of /etc only what
programs need to run, nothing that tells about the host's users; home, /tmp and /run fresh and bounded; a loopback of
its own, and nothing else unless the spec asks for the network (`network.py`). Programs run as uid 1000, `user`, without
any capability.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

from deskroll.desktops.base import DesktopSpec
from deskroll.host.bubblewrap import system_folders

USER, UID, HOME, HOST_NAME = "user", 1000, "/home/user", "desktop"
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
_SMALL = str(16 * 1024 * 1024)
_CACHES = ("/var/cache/fontconfig", "/var/lib/libreoffice", "/var/lib/xkb", "/var/lib/dpkg")


def arguments(spec: DesktopSpec, shims: Path) -> list[str]:
    """bubblewrap's arguments, without the program to run and without descriptors."""
    disk = str(spec.disk_mb * 1024 * 1024)
    args = ["--unshare-all", "--new-session", "--as-pid-1", "--die-with-parent"]
    args += ["--uid", str(UID), "--gid", str(UID), "--hostname", HOST_NAME]
    args += ["--proc", "/proc", "--dev", "/dev", *system_folders()]
    # Nothing in /etc can be written but by root, which `sudo` makes of a program. A desktop has one user, who owns the
    # files too: a program that changes their modes first is not stopped, nor needs it to be for anybody else's sake.
    args += ["--perms", "0555", "--size", _SMALL, "--tmpfs", "/etc"]
    for folder in sorted({f"/etc/{name}".rpartition("/")[0] for name in _ETC} - {"/etc"}):
        args += ["--perms", "0555", "--dir", folder]
    args += _read_only(f"/etc/{name}" for name in _ETC)
    args += _read_only(_CACHES)
    for path, perms, size in (
        ("/tmp", "1777", disk),  # noqa: S108
        ("/dev/shm", "1777", disk),  # noqa: S108
        (HOME, "0755", disk),
        ("/run", "0755", _SMALL),
        (RUN, "0700", disk),
        (STATE, "0700", disk),
    ):
        args += ["--perms", perms, "--size", size, "--tmpfs", path]
    args += ["--ro-bind", str(shims), SHIMS, "--chdir", HOME]
    return args


def lifeline_program() -> bytes:
    """What `LIFELINE` holds."""
    return Path(shutil.which("cat") or "/bin/cat").read_bytes()


def _read_only(paths: Iterable[str]) -> list[str]:
    args = []
    for path in paths:
        if Path(path).exists():
            args += ["--ro-bind", str(Path(path).resolve()), path]
    return args


def etc_files(desktop_id: str, name_server: str) -> dict[str, str]:
    """The files of /etc that are the desktop's own; with `sudo`, and only so, its programs may change them."""
    resolver = {"/etc/resolv.conf": f"nameserver {name_server}\n"} if name_server else {}
    machine = hashlib.md5(desktop_id.encode(), usedforsecurity=False).hexdigest()
    return {
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
