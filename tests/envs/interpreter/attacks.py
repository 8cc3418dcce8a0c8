"""Code that tries to get out, to look outside, to take more than its share, or to break what runs it.

An attack is code, what its result must say, and its time limit. Words in capitals between @ are filled in
(`tests/prey.py`): system calls by their number, and what is there on the host: PORT (a TCP service), SOCKET (a unix
socket), ABSTRACT (an abstract one), CANARY (a file), PID (a process), KEY (a key of the worker's).
"""

from __future__ import annotations

import platform
from typing import NamedTuple


class Attack(NamedTuple):
    """One attack."""

    name: str
    code: str
    says: str
    """A regular expression that is found in the result."""
    timeout: float = 20.0


STOPPED = "stopped: the call's limit"
LOST = "started anew: names, imports and files are lost"
SHORT = 2.0
# The forbidden thing, done in C: 0 would be success.
_C = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def try_(name, *args):
    got = getattr(libc, name)(*args)
    return "DONE" if got >= 0 else os.strerror(ctypes.get_errno())
"""
_DENIED = "not permitted|[Pp]ermission denied|Function not implemented"
_ABSENT = "No such file or directory"
# Machine code of the numbering that 32-bit programs have.
_I386 = f"""{_C}
import mmap, struct
def old(number, ebx, ecx):
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(b"\\x53\\xb8" + struct.pack("<IBIBI", number, 0xBB, ebx, 0xB9, ecx) + b"\\x31\\xd2\\xcd\\x80\\x5b\\xc3")
    got = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
    return "DONE" if got >= 0 else os.strerror(-got)
"""
_OTHER_NUMBERINGS = (
    Attack("32-bit: anything", f"{_I386}\nold(20, 0, 0)", f"{_DENIED}|SIGSEGV"),
    Attack("32-bit: keys", f"{_I386}\nold(288, 0, 0xFFFFFFFD)", f"{_DENIED}|SIGSEGV"),
    Attack("32-bit: vsock", f"{_I386}\nold(359, 40, 1)", f"{_DENIED}|SIGSEGV"),
    Attack("x32: keys", f"{_C}\ntry_('syscall', 0x40000000 + 250, 0, -3, 0, 0, 0)", "not implemented"),
)

ATTACKS = (
    # More than its share
    Attack("fork bomb", "import os\nwhile True:\n    os.fork()", "BlockingIOError"),
    Attack(
        "fork bomb that goes on",
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
        STOPPED,
        SHORT,
    ),
    Attack(
        "thread bomb",
        "import threading\nhold = threading.Event()\n"
        "while True:\n    threading.Thread(target=hold.wait, daemon=True).start()",
        "can't start new thread|MemoryError",
    ),
    Attack("memory: list", "a = []\nwhile True:\n    a.append(list(range(10**5)))", f"MemoryError|{LOST}"),
    Attack("memory: bytearray", "bytearray(10**10)", "MemoryError"),
    Attack("memory: numpy", "import numpy\nnumpy.ones(10**9)", "MemoryError"),
    Attack("memory: private mmap", "import mmap\nmmap.mmap(-1, 10**10, flags=mmap.MAP_PRIVATE)", "Cannot allocate"),
    Attack("memory: shared mmap", "import mmap\nmmap.mmap(-1, 10**10)", "Cannot allocate"),
    Attack(
        "memory: /dev/shm",
        "import os\nfor n in range(100):\n    open(f'/dev/shm/{n}', 'wb', 0).write(bytes(10**7))\n"
        "sum(os.path.getsize(f'/dev/shm/{n}') for n in range(100)) < 40 * 10**6 or 'UNBOUNDED'",
        r"No space left|True",
    ),
    Attack("memory: memfd", "import os\nos.memfd_create('x')", _DENIED),
    Attack("memory: System V", f"{_C}\ntry_('shmget', 0, 10**9, 0o1600)", _DENIED),
    Attack(
        "disk: many files",
        "for n in range(1000):\n    with open(f'{n}', 'wb') as f:\n        f.write(bytes(10**6))",
        "No space left",
    ),
    Attack(
        "disk: one file", "f = open('x', 'wb', 0)\nwhile f.write(bytes(10**6)):\n    pass", "No space left|too large"
    ),
    Attack("disk: a sparse file", "open('x', 'wb').truncate(10**12)", "too large"),
    Attack(
        "disk: a zip bomb",
        "import zipfile\nz = zipfile.ZipFile('b.zip', 'w', zipfile.ZIP_DEFLATED)\n"
        "for n in range(8):\n    z.writestr(f'{n}', bytes(10**7))\nz.close()\n"
        "zipfile.ZipFile('b.zip').extractall('out')",
        "No space left",
    ),
    Attack("open files", "a = []\nwhile True:\n    a.append(open('/dev/null'))", "Too many open files"),
    Attack(
        "terminals",
        "import os\na = []\nwhile len(a) < 100:\n    a.append(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))\n'DONE'",
        _ABSENT,
    ),
    Attack("terminals: a pair", "import os\nos.openpty()\n'DONE'", f"{_ABSENT}|out of pty"),
    Attack("higher limits", "import resource as r\nr.setrlimit(r.RLIMIT_NPROC, (10**5, 10**5))", "not allowed|exceeds"),
    # Without an end
    Attack("endless loop", "while True:\n    pass", f"{STOPPED}.*names and files are kept", SHORT),
    Attack("sleep for ever", "import time\ntime.sleep(10**6)", f"{STOPPED}.*names and files are kept", SHORT),
    Attack("a power without end", "9**9**9", STOPPED, SHORT),
    Attack(
        "ignores signals",
        "import signal\nfor n in range(1, 65):\n    try:\n        signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError):\n        pass\nwhile True:\n    pass",
        f"{STOPPED}.*did not react.*{LOST}",
        SHORT,
    ),
    Attack(
        "swallows interrupts",
        "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
        f"{STOPPED}.*{LOST}",
        SHORT,
    ),
    Attack("stops itself", f"{_C}\ntry_('pause')", STOPPED, SHORT),
    Attack("endless output", "while True:\n    print('x' * 1000)", "bytes left out(.|\n)*stopped", SHORT),
    Attack("endless output of a child", "import os\nos.system('yes')", "bytes left out(.|\n)*stopped", SHORT),
    Attack("gigantic repr", "'x' * 5 * 10**7", "bytes left out"),
    Attack("recursive repr", "class A:\n    def __repr__(self):\n        return repr(self)\nA()", "RecursionError"),
    Attack("repr that raises", "class A:\n    def __repr__(self):\n        raise SystemExit(7)\nA()", "status 7"),
    Attack("deep recursion", "def f():\n    return f()\nf()", "RecursionError"),
    Attack(
        "recursion without a limit",
        "import sys\nsys.setrecursionlimit(2**31 - 1)\nclass A:\n    def __getattr__(self, n):\n"
        "        return getattr(self, n + 'x')\nA().x",
        f"SIGSEGV|{LOST}|MemoryError",
    ),
    Attack("an exception nobody can show", "class E(Exception):\n    __str__ = None\nraise E", "E"),
    # Files of the host
    Attack("/etc/shadow", "open('/etc/shadow').read()", _ABSENT),
    Attack("/etc/passwd", "print(open('/etc/passwd').read())", r"^user:x:1000:1000:user:/home/user:/bin/sh$"),
    Attack("home folders", "import os\nos.listdir('/home'), os.path.exists('/root')", r"\(\['user'\], False\)"),
    Attack("a file of the host", "open('@CANARY@').read()", _ABSENT),
    Attack("a symbolic link", "import os\nos.symlink('@CANARY@', 'l')\nopen('l').read()", _ABSENT),
    Attack("a hard link", "import os\nos.link('@CANARY@', 'l')", _ABSENT),
    Attack("a hard link to /usr", "import os\nos.link('/usr/bin/env', 'l')", "cross-device|not permitted"),
    Attack("dots", "open('../' * 40 + '@CANARY@').read()", _ABSENT),
    Attack("/proc/self/root", "open('/proc/self/root@CANARY@').read()", _ABSENT),
    Attack("/proc/1/root", "import os\nos.listdir('/proc/1/root')", _ABSENT),
    Attack("/proc/@PID@", "open('/proc/@PID@/environ').read()", _ABSENT),
    Attack("sysrq", "open('/proc/sysrq-trigger', 'w').write('b')", _ABSENT),
    Attack("core_pattern", "open('/proc/sys/kernel/core_pattern', 'w').write('|/x')", _ABSENT),
    Attack("/sys", "import os\nos.listdir('/sys')", _ABSENT),
    Attack("control groups", "open('/sys/fs/cgroup/cgroup.procs').read()", _ABSENT),
    Attack("/dev/mem", "open('/dev/mem', 'rb').read(1)", _ABSENT),
    Attack("/dev/kmsg", "open('/dev/kmsg').read(1)", _ABSENT),
    Attack("kernel log", f"{_C}\nb = ctypes.create_string_buffer(99)\ntry_('klogctl', 3, b, 99)", _DENIED),
    Attack("mknod", "import os, stat\nos.mknod('sda', 0o600 | stat.S_IFBLK, os.makedev(8, 0))", _DENIED),
    Attack("writes to /usr", "open('/usr/bin/x', 'w')", "Read-only file system|Permission denied"),
    Attack("writes to the root", "open('/x', 'w')", "Read-only file system|Permission denied"),
    Attack("writes to /etc", "open('/etc/passwd', 'w')", "Read-only file system|Permission denied"),
    Attack("writes to /dev", "open('/dev/x', 'w')", "Read-only file system|Permission denied"),
    Attack("writes to numpy", "import numpy\nopen(numpy.__file__, 'a')", "Read-only file system|Permission denied"),
    Attack("names of descriptors", "import os\n[os.readlink(f'/dev/fd/{n}') for n in range(9)]", _ABSENT),
    Attack(
        "descriptors from outside",
        "import os\nfound = []\nfor n in range(9999):\n    try:\n        found.append((n, os.fstat(n) and n)[0])\n"
        "    except OSError:\n        pass\nfound",
        r"^\[0, 1, 2, 200, 201, 202\]$",
    ),
    Attack("other packages", "import msgspec", "No module named 'msgspec'"),
    Attack(
        "other packages, searched for",
        "import glob, os, sys\n"
        "tops = [sys.prefix, '/opt', '/home', '/usr/local/lib', *glob.glob('/usr/lib/python3*')]\n"
        "[p for top in tops if top != '/usr' for p, folders, files in os.walk(top) "
        "if 'msgspec' in folders or (p.endswith('-packages') and folders + files)]",
        r"^\[\]$",
        60.0,
    ),
    # Privileges and other processes
    Attack("keys in the environment", "import os\n'sk-te' + 'st' in repr(os.environ)", "^False$"),
    Attack(
        "keys in environments of a child",
        "import os\nos.system('env; cat /proc/*/environ /proc/1/environ')",
        "No such file",
    ),
    Attack(
        "keys in memory",
        "import gc\nany('sk-te' + 'st-' in repr(o) for o in gc.get_objects() if isinstance(o, dict) and len(o) < 99)",
        "^False$",
    ),
    Attack("mount", f"{_C}\ntry_('mount', b'none', b'/home/user', b'tmpfs', 0, None)", _DENIED),
    Attack("umount", f"{_C}\ntry_('umount2', b'/etc', 2)", _DENIED),
    Attack("unshare: user", f"{_C}\ntry_('unshare', 0x10000000)", _DENIED),
    Attack("unshare: by a program", "import os\nos.system('unshare -Ur id')", _DENIED),
    Attack("clone: user", f"{_C}\ntry_('syscall', 56, 0x10000011, 0, 0, 0, 0)", _DENIED),
    Attack("clone3", f"{_C}\ntry_('syscall', 435, ctypes.create_string_buffer(88), 88)", "not implemented"),
    Attack("setns", f"{_C}\ntry_('setns', 0, 0)", _DENIED),
    Attack("chroot", "import os\nos.chroot('/usr')", _DENIED),
    Attack("pivot_root", f"{_C}\ntry_('syscall', 155, b'/', b'/')", _DENIED),
    Attack("setuid", "import os\nos.setuid(0)", f"{_DENIED}|Invalid argument"),
    Attack("setuid programs", "import os\nos.system('su -c id; mount --bind / /home/user')\nos.getuid()", "1000$"),
    Attack("setgroups", "import os\nos.setgroups([0])", _DENIED),
    Attack("ptrace", f"{_C}\nlibc.ptrace.restype = ctypes.c_long\ntry_('ptrace', 16, @PID@, 0, 0)", _DENIED),
    Attack("process_vm_readv", f"{_C}\ntry_('process_vm_readv', @PID@, None, 0, None, 0, 0)", _DENIED),
    Attack("memory of a process", "open('/proc/@PID@/mem', 'rb').read(1)", _ABSENT),
    Attack("kill the parent", "import os\nos.kill(@PID@, 9)", "No such process"),
    Attack(
        "kill everybody",
        "import os\ntry:\n    os.kill(-1, 9)\nexcept ProcessLookupError:\n    print('nobody')",
        "nobody",
    ),
    Attack("kill its group", "import os\nos.killpg(0, 9)", f"^\\(no output\\)$|No such process|{LOST}"),
    Attack("outlive the worker", f"{_C}\ntry_('prctl', 1, 0, 0, 0, 0)", _DENIED),
    Attack("host name", "import socket\nsocket.sethostname('x')", _DENIED),
    Attack(
        "keys: the worker's",
        f"{_C}\nprint(try_('syscall', @KEYCTL@, 10, -3, b'user', b'@KEY@', 0))\nk = libc.syscall(@KEYCTL@, 10, -3, "
        "b'user', b'@KEY@', 0)\nb = ctypes.create_string_buffer(99)\nlibc.syscall(@KEYCTL@, 11, k, b, 99)\nb.value",
        _DENIED,
    ),
    Attack("keys: of the session", f"{_C}\ntry_('syscall', @KEYCTL@, 0, -3, 0, 0, 0)", _DENIED),
    Attack("keys: another session", f"{_C}\ntry_('syscall', @KEYCTL@, 1, b'common')", _DENIED),
    Attack("keys: left behind", f"{_C}\ntry_('syscall', @ADDKEY@, b'user', b'left', b'x', 1, -3)", _DENIED),
    Attack("keys: asked for", f"{_C}\ntry_('syscall', @REQUESTKEY@, b'user', b'@KEY@', 0, -3)", _DENIED),
    Attack("bpf", f"{_C}\ntry_('syscall', @BPF@, 0, 0, 0)", _DENIED),
    Attack("io_uring", f"{_C}\ntry_('syscall', @IOURINGSETUP@, 1, ctypes.create_string_buffer(120))", _DENIED),
    Attack("io_uring_enter", f"{_C}\ntry_('syscall', @IOURINGENTER@, -1, 0, 0, 0, 0, 0)", _DENIED),
    Attack("io_uring_register", f"{_C}\ntry_('syscall', @IOURINGREGISTER@, -1, 0, 0, 0)", _DENIED),
    Attack("userfaultfd", f"{_C}\ntry_('syscall', @USERFAULTFD@, 1)", _DENIED),
    Attack("perf", f"{_C}\ntry_('syscall', @PERF@, ctypes.create_string_buffer(128), 0, -1, -1, 0)", _DENIED),
    Attack("a kernel module", f"{_C}\ntry_('syscall', @INITMODULE@, b'x', 1, b'')", _DENIED),
    Attack("kexec", f"{_C}\ntry_('syscall', @KEXECLOAD@, 0, 0, 0, 0)", _DENIED),
    Attack("fsopen", f"{_C}\ntry_('syscall', @FSOPEN@, b'devpts', 0)", _DENIED),
    Attack("open_tree", f"{_C}\ntry_('syscall', @OPENTREE@, -100, b'/', 1)", _DENIED),
    Attack("clock", "import time\ntime.clock_settime(time.CLOCK_REALTIME, 0)", _DENIED),
    Attack("priority", "import os\nos.nice(-20)", _DENIED),
    # Network
    Attack("loopback of the host", "import socket\nsocket.create_connection(('127.0.0.1', @PORT@), 5)", "refused"),
    Attack("an address", "import socket\nsocket.create_connection(('192.0.2.1', 80), 5)", "Network is unreachable"),
    Attack(
        "metadata service", "import urllib.request as u\nu.urlopen('http://169.254.169.254/', timeout=5)", "unreachable"
    ),
    Attack("name service", "import socket\nsocket.getaddrinfo('example.org', 80)", "gaierror"),
    Attack(
        "name service by hand",
        "import socket\nsocket.socket(2, 2).sendto(b'x', ('192.0.2.1', 53))",
        "Network is unreachable",
    ),
    Attack("ping", "import socket\nsocket.socket(2, socket.SOCK_RAW, 1)", _DENIED),
    Attack("packets", "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)", "not supported|not permitted"),
    Attack("netlink", "import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", "not supported"),
    Attack(
        "vsock", "import socket\nsocket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).connect((2, 1))", "not supported"
    ),
    Attack("vsock, datagrams", "import socket\nsocket.socket(socket.AF_VSOCK, socket.SOCK_DGRAM)", "not supported"),
    Attack("kernel crypto", "import socket\nsocket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)", "not supported"),
    Attack("unix socket", "import socket\nsocket.socket(socket.AF_UNIX).connect('@SOCKET@')", _ABSENT),
    Attack("abstract unix socket", "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0@ABSTRACT@')", "refused"),
    # Against what runs it
    Attack("segfault", "import ctypes\nctypes.string_at(0)", f"died of SIGSEGV.*{LOST}"),
    Attack("abort", "import os\nos.abort()", f"died of SIG.*{LOST}"),
    Attack("exit", "print('bye')\nexit(3)", f"bye\n.*exit status 3.*{LOST}"),
    Attack("exit with words", "import sys\nsys.exit('so long')", f"so long\n.*exit status 1.*{LOST}"),
    Attack("os._exit", "import os\nos._exit(0)", f"exit status 0.*{LOST}"),
    Attack(
        "exit at exit", "import atexit, os, sys\natexit.register(os._exit, 5)\nsys.exit(4)", f"exit status 4.*{LOST}"
    ),
    Attack(
        "exit in __del__",
        "import os\nclass A:\n    def __del__(self):\n        os._exit(6)\nA()\n1",
        f"status 6.*{LOST}",
    ),
    Attack("a fork that comes back", "import os\npid = os.fork()\n'twice'", "^'twice'$"),
    Attack(
        "a thread that goes on printing",
        "import threading\ndef p():\n    while True:\n        print('n')\n"
        "threading.Thread(target=p, daemon=True).start()\n'on'",
        "^'on'$",
    ),
    Attack(
        "a daemon",
        "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        os.execvp('sleep', ['sleep', '9999'])\n"
        "    os._exit(0)\n'left'",
        "left",
    ),
    Attack("closes everything", "import os\nos.closerange(0, 4096)", LOST),
    Attack(
        "closes its streams", "import os, sys\nsys.stdout.close()\nsys.stderr.close()\nos.close(1)\nos.close(2)", ""
    ),
    Attack("detaches its streams", "import sys\nsys.stdout.detach()\nsys.stdout = None\nsys.stderr = 5", "no output"),
    Attack(
        "replaces every descriptor",
        "import os\nn = os.open('/dev/null', os.O_RDWR)\nfor f in range(256):\n    f == n or os.dup2(n, f)",
        LOST,
    ),
    Attack(
        "forges answers",
        "import os\nfor f in range(3, 256):\n    try:\n        os.write(f, b'\\0' * 16 + b'd')\n"
        "    except OSError:\n        pass",
        f"wrote to the interpreter's own connection.*{LOST}",
    ),
    Attack(
        "floods the connection",
        "import os\nfor f in range(3, 256):\n    try:\n        os.write(f, b'd' * 10**6)\n"
        "    except OSError:\n        pass",
        LOST,
    ),
    Attack(
        "forges answers with the right token",
        "import os, sys\nf = sys._getframe()\nwhile 'token' not in f.f_locals:\n    f = f.f_back\n"
        "os.write(200, f.f_locals['token'] + b'd' + b'more')",
        LOST,
    ),
    Attack(
        "prints frames",
        "import sys\nsys.stdout.buffer.write(b'\\0\\0\\0\\x11' + b'd' * 17)\nprint('--- 1 of 1 ---')",
        "1 of 1",
    ),
    Attack(
        "overwrites built-ins",
        "import builtins\nfor n in list(vars(builtins)):\n    if n not in ('vars', 'list', 'setattr', 'builtins'):\n"
        "        setattr(builtins, n, None)",
        "",
    ),
    Attack("empties the built-ins", "import builtins\nvars(builtins).clear()", ""),
    Attack("empties sys.modules", "import sys\nsys.modules.clear()", ""),
    Attack(
        "replaces modules",
        "import sys, os\nfor m in (sys, os):\n    for n in list(vars(m)):\n        setattr(m, n, None)",
        "",
    ),
    Attack("empties the runner", "import sys\nsys._getframe(1).f_globals.clear()", LOST),
    Attack(
        "replaces the runner's code",
        "import sys\nf = sys._getframe(1)\nwhile f:\n    for v in list(f.f_globals.values()):\n"
        "        if hasattr(v, '__code__'):\n"
        "            v.__code__ = (lambda *a: 1 / 0).__code__\n    f = f.f_back",
        LOST,
    ),
    Attack("a trace function", "import sys\ndef t(*a):\n    raise ValueError('traced')\nsys.settrace(t)", ""),
    Attack("a profile function", "import sys\ndef t(*a):\n    raise ValueError('traced')\nsys.setprofile(t)", ""),
    Attack("a low recursion limit", "import sys\nsys.setrecursionlimit(20)", ""),
    Attack("collects what the runner holds", "import gc\n[o.clear() for o in gc.get_objects() if type(o) is list]", ""),
    Attack("a hook for exceptions", "import sys\nsys.excepthook = sys.displayhook = exit\n1/0", "ZeroDivisionError"),
    Attack(
        "hides behind a module",
        "import sys\nsys.modules['linecache'] = sys.modules['traceback'] = 5\n1/0",
        "ZeroDivisionError",
    ),
    Attack("a null byte", "'\\0'\n\0", "SyntaxError|ValueError"),
    Attack("half a character", "print('\\ud800')", r"\\ud800"),
    Attack("deep nesting", "(" * 5000 + ")" * 5000, "SyntaxError|MemoryError|RecursionError|SIGSEGV"),
    *(_OTHER_NUMBERINGS if platform.machine() == "x86_64" else ()),
)
