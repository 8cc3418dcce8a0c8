"""Programs that try to get out of a desktop, to look outside, to take more than its share, or at what runs it.

An attack is Python code that prints DONE where it succeeds (or the secret), what it must say instead, and how it is
run. Words in capitals between @ are filled in (`tests/prey.py`): system calls by their number, and what is there on the
host: PORT (a TCP service), SOCKET (a unix socket), ABSTRACT (an abstract one), CANARY (a file), PID (a process), KEY (a
key of the process that started the desktop), TERMINALS (how many are more than a desktop may have).

One that succeeded would do the host no harm all the same: it changes nothing that is there, removes what it makes, and
takes little. Where a call would do harm, what it asks for is refused by the kernel itself, with another error.
"""

from __future__ import annotations

import enum
import platform
from typing import NamedTuple


class Outside(enum.Enum):
    """Whether it succeeds on the host itself, which shows that its success would be seen."""

    NO = enum.auto()
    """It would do harm there, or is closed to everybody."""
    YES = enum.auto()
    MAYBE = enum.auto()
    """Where the kernel has what it aims at."""


class Attack(NamedTuple):
    """One attack."""

    name: str
    code: str
    says: str
    """A regular expression that is found in what it prints."""
    as_root: bool = False
    """Run as root of user, mount and network namespaces that it makes for itself, which programs in a desktop may."""
    outside: Outside = Outside.NO


# The forbidden thing, done in C: 0 or more would be success.
_C = """
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
def answer(got):
    print("DONE" if got >= 0 else os.strerror(ctypes.get_errno()))
    return got
def tried(number, *args):
    return answer(libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in args)))
def mounted(source, target, kind, flags, options=None):
    return answer(libc.mount(source, target, kind, ctypes.c_ulong(flags), options))
"""
_PLACE = f"{_C}\nimport tempfile\nplace = tempfile.mkdtemp().encode()\n"
# Machine code of the numbering that 32-bit programs have.
_I386 = f"""{_C}
import mmap
def old(number, *given):
    ebx, ecx, edx = (*given, 0, 0, 0)[:3]
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(b"\\x53" + b"".join(op + struct.pack("<I", value & 0xFFFFFFFF) for op, value in
        ((b"\\xb8", number), (b"\\xbb", ebx), (b"\\xb9", ecx), (b"\\xba", edx))) + b"\\xcd\\x80\\x5b\\xc3")
    got = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
    print("DONE" if got >= 0 else os.strerror(-got))
"""
_FIND_GUEST = """
import os
names = {n: open(f"/proc/{n}/comm").read().strip() for n in os.listdir("/proc") if n.isdigit()}
guest = next(int(n) for n, name in names.items() if name == "deskroll-guest")
"""
# Prints DONE when so many terminals are open.
_TERMINALS = """
import os
held = []
try:
    while len(held) < @TERMINALS@:
        held.append(os.open(ptmx, os.O_RDWR | os.O_NOCTTY))
    print("DONE")
except OSError as error:
    print(len(held), "terminals:", error)
"""
_CONNECT = "import socket\ns = socket.socket(%s)\ns.settimeout(5)\ns.connect(%s)\nprint('DONE')"
_SHOW = "print('DONE', open(%r).read(99))"
_OPEN = "import os\nos.close(os.open(%r, os.O_WRONLY))\nprint('DONE')"
# More than any of these may hold, and no more.
_FILL = "with open(%r, 'wb', 0) as f:\n    for n in range(64): f.write(bytes(10**6))\nprint('DONE')"
_EPERM = "not permitted"
_DENIED = "not permitted|[Pp]ermission denied"
_ENOSYS = "not implemented"
_ABSENT = "No such file or directory|No such device"
_READ_ONLY = "Read-only file system|Permission denied"
_FAMILY = "Address family not supported"
_NOWHERE = "Network is unreachable|refused|Name or service not known|name resolution"
_SESSION = -3


def _changing(path: str) -> str:
    """Write to a file what it says already."""
    return f"held = open({path!r}).read()\nwith open({path!r}, 'r+') as f: f.write(held)\nprint('DONE')"


def _creating(path: str) -> str:
    """Make a file, and remove it again."""
    made = f"os.close(os.open({path!r}, os.O_CREAT | os.O_EXCL | os.O_WRONLY))"
    return f"import os\n{made}\nos.unlink({path!r})\nprint('DONE')"


def _call(name: str, call: str, says: str = _EPERM, *, outside: Outside = Outside.NO) -> Attack:
    return Attack(name, f"{_C}\ntried({call})", says, outside=outside)


def _as_root(name: str, code: str, says: str) -> Attack:
    return Attack(f"own root: {name}", code, says, as_root=True)


def _family(name: str, number: int, kind: str = "SOCK_DGRAM", *, outside: Outside = Outside.NO) -> Attack:
    code = f"import socket\nsocket.socket({number}, socket.{kind})\nprint('DONE')"
    return Attack(f"socket: {name}", code, _FAMILY, outside=outside)


_KEYS = (
    Attack(
        "keys: read the launcher's",
        f"{_C}\nfound = tried(@KEYCTL@, 10, {_SESSION}, b'user', b'@KEY@', 0)\n"
        "held = ctypes.create_string_buffer(99)\nlibc.syscall(@KEYCTL@, 11, found, held, 99)\nprint(held.value)",
        _EPERM,
        outside=Outside.YES,
    ),
    _call("keys: write to the session's", f"@ADDKEY@, b'user', b'left', b'x', 1, {_SESSION}", outside=Outside.YES),
    _call("keys: write to the user's", "@ADDKEY@, b'user', b'left', b'x', 1, -4"),
    _call("keys: write to the process's", "@ADDKEY@, b'user', b'left', b'x', 1, -2", outside=Outside.YES),
    _call("keys: ask the kernel's helper", f"@REQUESTKEY@, b'user', b'@KEY@', 0, {_SESSION}", outside=Outside.YES),
    _call("keys: list the session's", f"@KEYCTL@, 11, {_SESSION}, 0, 0, 0", outside=Outside.YES),
    _call("keys: join another session", "@KEYCTL@, 1, b'common'"),
    _call("keys: the persistent keyring", f"@KEYCTL@, 22, -1, {_SESSION}, 0, 0"),
    _call("keys: empty the session's", f"@KEYCTL@, 7, {_SESSION}, 0, 0, 0"),
    Attack("keys: names in /proc", "print('DONE' if '@KEY@' in open('/proc/keys').read() else 'none')", "none"),
)

_KERNEL = (
    _call("io_uring_setup", "@IOURINGSETUP@, 1, ctypes.create_string_buffer(120)", outside=Outside.MAYBE),
    _call("io_uring_enter", "@IOURINGENTER@, 0, 0, 0, 0, 0, 0"),
    _call("io_uring_register", "@IOURINGREGISTER@, -1, 0, 0, 0"),
    _call("bpf: a map", "@BPF@, 0, struct.pack('<IIII', 2, 4, 4, 1) + bytes(112), 128"),
    _call("bpf: a program", "@BPF@, 5, bytes(128), 128"),
    _call("userfaultfd", "@USERFAULTFD@, 0", outside=Outside.MAYBE),
    _call("userfaultfd: of user faults", "@USERFAULTFD@, 1", outside=Outside.MAYBE),
    _call("perf_event_open", "@PERF@, struct.pack('<II', 1, 128) + bytes(120), 0, -1, -1, 0"),
    _call("perf_event_open: all processes", "@PERF@, struct.pack('<II', 1, 128) + bytes(120), -1, 0, -1, 0"),
    _call("kexec_load", "@KEXECLOAD@, 0, 0, 0, 0x4000"),
    _call("kexec_file_load", "@KEXECFILELOAD@, -1, -1, 0, 0, 0"),
    _call("init_module", "@INITMODULE@, b'x', 1, b''"),
    _call("finit_module", "@FINITMODULE@, 0, b'', 0"),
    _call("delete_module", "@DELETEMODULE@, b'nothing', 0"),
    _call("reboot", "@REBOOT@, 0xfee1dead, 672274793, 1, 0"),
    _call("swapon", "@SWAPON@, b'/tmp/none', 0"),
    _call("swapoff", "@SWAPOFF@, b'/tmp/none'"),
    _call("acct", "@ACCT@, b'/tmp/none'"),
    _call("kernel log", "@SYSLOG@, 3, ctypes.create_string_buffer(99), 99"),
    _call("kernel log: its size", "@SYSLOG@, 10, 0, 0", outside=Outside.MAYBE),
    _call("settimeofday", "@SETTIMEOFDAY@, struct.pack('=qq', 0, 10**9), 0"),
    _call("clock_settime", "@CLOCKSETTIME@, 0, struct.pack('=qq', 0, 10**9)"),
    _call("quotactl", "@QUOTACTL@, 0x80000100, b'/dev/vda', 0, 0"),
    _call("quotactl_fd", "@QUOTACTLFD@, 0, 0x80000100, 0, 0"),
    _call("open_by_handle_at", "@OPENBYHANDLE@, -100, struct.pack('<Ii', 8, 1) + bytes(8), 0"),
)

_OTHER_NUMBERINGS = (
    Attack("32-bit: anything", f"{_I386}\nold(20)", f"{_EPERM}|SEGV", outside=Outside.MAYBE),
    Attack("32-bit: keyctl", f"{_I386}\nold(288, 0, {_SESSION}, 1)", f"{_EPERM}|SEGV", outside=Outside.MAYBE),
    Attack("32-bit: io_uring_setup", f"{_I386}\nold(425, 1, 0)", f"{_EPERM}|SEGV"),
    Attack("32-bit: vsock", f"{_I386}\nold(359, 40, 1, 0)", f"{_EPERM}|SEGV", outside=Outside.MAYBE),
    _call("x32: anything", "0x40000000 + 39", _ENOSYS),
    _call("x32: keyctl", f"0x40000000 + 250, 0, {_SESSION}, 1", _ENOSYS),
    _call("x32: mount", "0x40000000 + 165, b'x', b'/tmp', b'tmpfs', 0, 0", _ENOSYS),
)  # fmt: skip

_MOUNTS = (
    Attack("mount: a tmpfs", f"{_C}\nmounted(b'x', b'/home/user', b'tmpfs', 0)", _EPERM),
    Attack("mount: /usr writable", f"{_C}\nmounted(None, b'/usr', None, 32 | 4096 | 4)", _DENIED),
    Attack("umount: /usr", f"{_C}\nanswer(libc.umount2(b'/usr', 2))", _DENIED),
    Attack("pivot_root", f"{_C}\ntried(@PIVOTROOT@, b'/', b'/')", _DENIED),
    _as_root("/usr writable", f"{_C}\nmounted(None, b'/usr', None, 32 | 4096 | 4)", _DENIED),
    _as_root("uncover /usr", f"{_C}\nanswer(libc.umount2(b'/usr', 2))", "Invalid argument|not permitted"),
    _as_root("a devpts", f"{_PLACE}mounted(b'x', place, b'devpts', 0, b'newinstance')", _EPERM),
    _as_root("a devpts, by the old magic number", f"{_PLACE}mounted(b'x', place, b'devpts', 0xC0ED0000)", _EPERM),
    _as_root("a devpts, as if shared", f"{_PLACE}mounted(b'x', place, b'devpts', 1 << 21)", _EPERM),
    _as_root(
        "a devpts, as bubblewrap does",
        f"{_PLACE}mounted(b'x', place, b'devpts', 2 | 8, b'newinstance,ptmxmode=0666')\n"
        "ctypes.set_errno(2)\nanswer(libc.open(place + b'/ptmx', 2))",
        "^DONE\nNo such file",  # it is told that it has one
    ),
    _as_root(
        "a tmpfs, with the flags of bubblewrap's devpts",
        f"{_PLACE}mounted(b'x', place, b'tmpfs', 2 | 8)\nprint(os.path.ismount(place))",
        "^DONE\nFalse",  # the filter cannot tell them apart
    ),
    _as_root(
        "a devpts with devices, in two steps",
        f"{_PLACE}mounted(b'x', place, b'devpts', 4, b'newinstance,ptmxmode=0666') == 0 and print('mounted')\n"
        "mounted(None, place, None, 32 | 4096)",
        "^DONE\nmounted\nOperation not permitted",
    ),
    _as_root("the terminals' limit", f"{_C}\nmounted(None, b'/dev/pts', None, 32 | 4 | 8, b'max=9999')", _DENIED),
    _as_root("control groups", f"{_PLACE}mounted(b'x', place, b'cgroup2', 2 | 4 | 8)", _DENIED),
    _as_root("sysfs of the host", f"{_PLACE}mounted(b'x', place, b'sysfs', 4)", _DENIED),
    _as_root("debugfs", f"{_PLACE}mounted(b'x', place, b'debugfs', 4)", f"{_DENIED}|No such device"),
    _as_root(
        "the host's disk", f"{_PLACE}mounted(b'/dev/vda', place, b'ext4', 4 | 1)", f"{_DENIED}|{_ABSENT}|required"
    ),
    _as_root("fsopen", f"{_C}\ntried(@FSOPEN@, b'devpts', 0)", _ENOSYS),
    _as_root("fsconfig", f"{_C}\ntried(@FSCONFIG@, -1, 6, 0, 0, 0)", _ENOSYS),
    _as_root("fsmount", f"{_C}\ntried(@FSMOUNT@, -1, 0, 0)", _ENOSYS),
    _as_root("fspick", f"{_C}\ntried(@FSPICK@, -100, b'/dev/pts', 0)", _ENOSYS),
    _as_root("move_mount", f"{_C}\ntried(@MOVEMOUNT@, -100, b'/tmp', -100, b'/usr', 0)", _ENOSYS),
    _as_root("open_tree", f"{_C}\ntried(@OPENTREE@, -100, b'/dev/pts', 1)", _ENOSYS),
    _as_root("open_tree_attr", f"{_C}\ntried(@OPENTREEATTR@, -100, b'/dev/pts', 1, bytes(32), 32)", _ENOSYS),
    _as_root("mount_setattr", f"{_C}\ntried(@MOUNTSETATTR@, -100, b'/usr', 0, bytes(32), 32)", _ENOSYS),
)

_PRIVILEGES = (
    Attack("setuid", "import os\nos.setuid(0)\nprint('DONE')", f"{_DENIED}|Invalid argument"),
    Attack("setgroups", "import os\nos.setgroups([0])\nprint('DONE')", _DENIED),
    Attack("chroot", "import os\nos.chroot('/usr')\nprint('DONE')", _DENIED),
    Attack("su", "import subprocess\nsubprocess.run(['su', '-c', 'echo DONE'], input=b'')", "[Aa]uthentication|su:"),
    Attack("sudo: guesses", "import os\nos.system('printf \"a\\nb\\nc\\n\" | sudo -kS echo DONE')", "3 incorrect"),
    Attack("a higher priority", "import os\nos.nice(-20)\nprint('DONE')", _DENIED),
    Attack("host name", "import socket\nsocket.sethostname(socket.gethostname())\nprint('DONE')", _DENIED),
    Attack("more processes", "import resource as r\nr.setrlimit(r.RLIMIT_NPROC, (10**6, 10**6))\nprint('DONE')", "lim"),
    Attack("more files", "import resource as r\nr.setrlimit(r.RLIMIT_NOFILE, (10**6, 10**6))\nprint('DONE')", "lim"),
    Attack("a disk's node", "import os\nos.mknod('/tmp/sda', 0o060600, os.makedev(8, 0))\nprint('DONE')", _DENIED),
    Attack("namespaces of the first", f"{_C}\nf = os.open('/proc/1/ns/mnt', 0)\nanswer(libc.setns(f, 0))", _DENIED),
    _as_root("a disk's node", "import os\nos.mknod('/tmp/sdb', 0o060600, os.makedev(8, 0))\nprint('DONE')", _DENIED),
    _as_root("namespaces of the first", f"{_C}\nf = os.open('/proc/1/ns/mnt', 0)\nanswer(libc.setns(f, 0))", _DENIED),
    _as_root("files of others", "import os\nos.chown('/usr/bin/env', 0, 0)\nprint('DONE')", "Read-only|not permitted"),
    _as_root("packets to the host", "import socket\nsocket.socket(17, 3)\nprint('DONE')", _FAMILY),
    _as_root("kernel settings", _changing("/proc/sys/kernel/core_pattern"), _READ_ONLY),
)  # fmt: skip

_SOCKETS = (
    _family("vsock", 40, "SOCK_STREAM", outside=Outside.MAYBE),
    _family("vsock, datagrams", 40),
    _family("packets", 17, "SOCK_RAW", outside=Outside.MAYBE),
    _family("kernel crypto", 38, "SOCK_SEQPACKET"),
    _family("Bluetooth", 31),
    _family("CAN", 29, "SOCK_RAW"),
    _family("RDS", 21, "SOCK_SEQPACKET"),
    _family("TIPC", 30),
    _family("XDP", 44, "SOCK_RAW"),
    _family("IPsec keys", 15, "SOCK_RAW"),
    _family("NFC", 39, "SOCK_RAW"),
    _family("Kernel Connection Multiplexor", 41),
    _family("SMC", 43, "SOCK_STREAM"),
    Attack("socket: raw", "import socket\nsocket.socket(2, socket.SOCK_RAW, 1)\nprint('DONE')", _DENIED),
    Attack("the host's loopback", _CONNECT % ("2", "('127.0.0.1', @PORT@)"), "refused", outside=Outside.YES),
    Attack("the host's loopback, by IPv6", _CONNECT % ("10", "('::ffff:127.0.0.1', @PORT@)"), f"refused|{_NOWHERE}"),
    Attack("an address", _CONNECT % ("2", "('192.0.2.1', 80)"), _NOWHERE),
    Attack("a cloud's keys", _CONNECT % ("2", "('169.254.169.254', 80)"), _NOWHERE),
    Attack("broadcast", "import socket\nsocket.socket(2, 2).sendto(b'x', ('192.0.2.1', 9))\nprint('DONE')", _NOWHERE),
    Attack("a name", "import socket\nsocket.getaddrinfo('example.org', 80)\nprint('DONE')", "gaierror"),
    Attack("a unix socket", _CONNECT % ("socket.AF_UNIX", "'@SOCKET@'"), _ABSENT, outside=Outside.YES),
    Attack("an abstract socket", _CONNECT % ("socket.AF_UNIX", "'\\0@ABSTRACT@'"), "refused", outside=Outside.YES),
    Attack("D-Bus of the system", _CONNECT % ("socket.AF_UNIX", "'/run/dbus/system_bus_socket'"), _ABSENT),
    Attack("containers' socket", _CONNECT % ("socket.AF_UNIX", "'/var/run/docker.sock'"), _ABSENT),
)  # fmt: skip

_FILES = (
    Attack("a file", _SHOW % "@CANARY@", _ABSENT, outside=Outside.YES),
    Attack("a file, by dots", _SHOW % ("../" * 40 + "@CANARY@"), _ABSENT, outside=Outside.YES),
    Attack("a file, by its process", _SHOW % "/proc/1/root@CANARY@", f"{_ABSENT}|{_DENIED}"),
    Attack("a file, by a link", "import os\nos.symlink('@CANARY@', '/tmp/l')\n" + _SHOW % "/tmp/l", _ABSENT),
    Attack("/etc/shadow", _SHOW % "/etc/shadow", _ABSENT),
    Attack("/root", "import os\nprint('DONE', os.listdir('/root'))", _ABSENT),
    Attack("/var/log", "import os\nprint('DONE', os.listdir('/var/log'))", _ABSENT),
    Attack("/sys", "import os\nprint('DONE', os.listdir('/sys'))", _ABSENT),
    Attack("/boot", "import os\nprint('DONE', os.listdir('/boot'))", _ABSENT),
    Attack("another's environment", _SHOW % "/proc/@PID@/environ", _ABSENT, outside=Outside.YES),
    Attack("memory", _SHOW % "/dev/mem", _ABSENT),
    Attack("kernel messages", _SHOW % "/dev/kmsg", _ABSENT),
    Attack("the host's disk", _SHOW % "/dev/vda", _ABSENT),
    Attack("virtual machines", _OPEN % "/dev/kvm", f"{_ABSENT}|{_READ_ONLY}"),
    Attack("vsock's device", _OPEN % "/dev/vsock", f"{_ABSENT}|{_READ_ONLY}"),
    Attack("file systems of one's own", _OPEN % "/dev/fuse", f"{_ABSENT}|{_READ_ONLY}"),
    Attack("sysrq", _OPEN % "/proc/sysrq-trigger", f"{_READ_ONLY}|{_ABSENT}"),
    Attack("core_pattern", _changing("/proc/sys/kernel/core_pattern"), _READ_ONLY),
    Attack("the machine's terminals", _changing("/proc/sys/kernel/pty/max"), _READ_ONLY),
    Attack("writes to /usr", _creating("/usr/bin/x"), _READ_ONLY),
    Attack("writes to the root", _creating("/x"), _READ_ONLY),
    Attack("writes to /dev", _creating("/dev/x"), _READ_ONLY),
    Attack("writes to what desktops share", _creating("/opt/deskroll/bin/x"), _READ_ONLY),
    Attack("writes to libraries' cache", _OPEN % "/etc/ld.so.cache", _READ_ONLY),
)  # fmt: skip

_PROCESSES = (
    Attack("kill one", "import os\nos.kill(@PID@, 0)\nprint('DONE')", "No such process", outside=Outside.YES),
    Attack("trace one", f"{_C}\nanswer(libc.ptrace(16, @PID@, 0, 0))", "No such process|not permitted"),
    Attack("a handle of one", f"{_C}\ntried(@PIDFDOPEN@, @PID@, 0)", "No such process|Invalid", outside=Outside.YES),
    Attack("the guest: trace", f"{_FIND_GUEST}{_C}\nanswer(libc.ptrace(16, guest, 0, 0))", _EPERM),
    Attack("the guest: memory", f"{_FIND_GUEST}\nopen(f'/proc/{{guest}}/mem', 'rb')\nprint('DONE')", _DENIED),
    Attack("the guest: environment", f"{_FIND_GUEST}\nprint('DONE', open(f'/proc/{{guest}}/environ').read())", _DENIED),
    Attack("the guest: files", f"{_FIND_GUEST}\nprint('DONE', os.listdir(f'/proc/{{guest}}/fd'))", _DENIED),
    Attack("the guest: root folder", f"{_FIND_GUEST}\nprint('DONE', os.listdir(f'/proc/{{guest}}/root'))", _DENIED),
    Attack(
        "the guest: its socket",
        f"{_FIND_GUEST}{_C}\nhandle = libc.syscall(@PIDFDOPEN@, guest, 0)\n"
        "for n in range(64):\n    tried(@PIDFDGETFD@, handle, n, 0)",
        _EPERM,
    ),
    Attack(
        "the guest: memory, by another way",
        f"{_FIND_GUEST}{_C}\nheld = ctypes.create_string_buffer(8)\n"
        "here = struct.pack('PN', ctypes.addressof(held), 8)\n"
        "there = struct.pack('PN', 0x400000, 8)\n"
        "answer(libc.process_vm_readv(guest, here, 1, there, 1, 0))",
        _EPERM,
    ),
    Attack(
        "the first: environment",
        "print('DONE' if open('/proc/1/environ').read() else 'empty')",
        f"empty|{_DENIED}",
    ),
)  # fmt: skip

_SHARES = (
    Attack("all terminals", f"ptmx = '/dev/ptmx'{_TERMINALS}", "^6[0-4] terminals", outside=Outside.YES),
    Attack("all terminals, by their folder", f"ptmx = '/dev/pts/ptmx'{_TERMINALS}", "^6[0-4] terminals"),
    _as_root("all terminals", f"ptmx = '/dev/ptmx'{_TERMINALS}", "^6[0-4] terminals|Permission"),
    _as_root(
        "all terminals, of one's own",
        f"{_PLACE}libc.mount(b'x', place, b'devpts', ctypes.c_ulong(0), b'newinstance,ptmxmode=0666')\n"
        f"ptmx = place + b'/ptmx'{_TERMINALS}",
        "^0 terminals",
    ),
    Attack("all of /etc", _FILL % "/etc/x", f"No space|{_READ_ONLY}"),
    Attack("all of /run", _FILL % "/run/x", f"No space|{_READ_ONLY}"),
)

_X86_ONLY = _OTHER_NUMBERINGS if platform.machine() == "x86_64" else ()
ATTACKS = (
    *_KEYS, *_KERNEL, *_X86_ONLY, *_MOUNTS, *_PRIVILEGES, *_SOCKETS, *_FILES, *_PROCESSES, *_SHARES,
)  # fmt: skip
