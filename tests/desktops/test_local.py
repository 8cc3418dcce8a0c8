"""Local desktops: what they are inside, what they cannot reach, what they leave behind."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from deskroll.actions import Typing
from deskroll.desktops.base import DesktopSpec, Observe
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers import make_provider
from deskroll.desktops.providers.local import places
from deskroll.desktops.providers.local.provider import LocalProvider, LocalSettings
from deskroll.errors import BootError, DesktopError, DesktopLost, InputError
from deskroll.host.control_group import can_make_groups
from tests.desktops.conftest import Boot, host_processes, leftovers, sandbox_pid
from tests.machine import desktop_processes
from tests.waiting import eventually, wait_until

SMALL = DesktopSpec(width=640, height=480)


async def output(desktop: GuestDesktop, command: str) -> str:
    return (await desktop.run(command)).output.strip()


async def test_programs_run_as_an_unprivileged_user_with_a_fresh_home(desktop: GuestDesktop) -> None:
    assert await output(desktop, "id -un; id -u; echo $HOME; pwd") == "user\n1000\n/home/user\n/home/user"
    assert await output(desktop, "ls") == "Desktop\nDocuments\nDownloads\nPictures"
    status = await output(desktop, "grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status")
    assert status.split() == ["CapEff:", "0" * 16, "CapBnd:", "0" * 16, "NoNewPrivs:", "1"]


async def test_the_guest_itself_has_no_privileges_and_shows_nothing_of_the_host(desktop: GuestDesktop) -> None:
    guest = host_processes(desktop.address)["deskroll-guest"]
    status = Path(f"/proc/{guest.pid}/status").read_text()
    assert "CapEff:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status
    listing = await output(desktop, "ps -eo args; for p in /proc/[0-9]*; do cat $p/environ $p/maps; done 2>/dev/null")
    for secret in (str(Path.cwd()), sys.prefix, os.environ["PATH"]):
        assert secret not in listing


async def test_programs_find_the_accessibility_bus_on_the_root_window(desktop: GuestDesktop) -> None:
    """Qt 5 looks there, and half of its programs stay unseen where it is not."""
    code = (
        "from Xlib.display import Display; d = Display(); "
        "print(d.screen().root.get_full_property(d.intern_atom('AT_SPI_BUS'), 0).value.decode())"
    )
    assert (await desktop.run(["python", "-c", code])).output.strip().splitlines()[-1].startswith("unix:")


async def test_the_system_is_read_only(desktop: GuestDesktop) -> None:
    for target in ("/usr/bin/x", "/x", "/dev/x", "/bin/ls", "/opt/deskroll/bin/x"):
        result = await desktop.run(f"touch {target}")
        assert result.returncode != 0, target
    assert (await desktop.run("mount -t tmpfs x /mnt")).returncode != 0


async def test_nothing_of_the_hosts_files_is_visible(desktop: GuestDesktop, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("nobody may read this")
    secret.chmod(0o644)
    for path in (
        secret,
        Path.home(),
        Path.cwd(),
        Path("/etc/shadow"),
        Path("/root"),
        Path("/var/log"),
        Path("/sys/kernel"),
    ):
        assert await output(desktop, f"ls -d {path} 2>/dev/null") == "", path
    with pytest.raises(DesktopError, match="not found"):
        await desktop.read_file(str(secret))
    users = await output(desktop, "cut -d: -f1 /etc/passwd")
    assert users.split() == ["root", "user", "nobody"]


async def test_no_network_but_loopback(desktop: GuestDesktop) -> None:
    assert await output(desktop, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '") == "lo"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        reached = await desktop.run(
            ["python3", "-c", f"import socket; socket.create_connection(('127.0.0.1', {port}), 3)"]
        )
    assert reached.returncode != 0
    assert "Connection refused" in reached.error


async def test_two_desktops_do_not_see_each_other(boot: Boot) -> None:
    one, two = await asyncio.gather(boot(), boot())
    blank = await two.screenshot()
    await one.write_file("/home/user/mine.txt", b"mine")
    await one.write_file("/tmp/mine.txt", b"mine")
    await one.write_file("/dev/shm/mine.txt", b"mine")
    await one.write_clipboard("copied in one")
    await one.launch(["xterm", "-e", "sleep 987654"])
    await eventually(one.windows, "the terminal is open")
    assert await one.screenshot() != blank
    assert await two.screenshot() == blank
    assert await two.windows() == []
    assert await output(two, "find / -name mine.txt 2>/dev/null") == ""
    assert await output(two, "ps -eo args | grep -c '[s]leep 987654'") == "0"
    assert await two.read_clipboard() != "copied in one"
    assert await output(two, "xclip -o -selection clipboard 2>&1 | grep -c 'copied in one'") == "0"
    # Abstract sockets and shared memory cross mount namespaces; they must not cross ours.
    listen = "import socket,time; s=socket.socket(socket.AF_UNIX); s.bind(chr(0)+'mine'); s.listen(); time.sleep(1000)"
    await one.launch(["python3", "-c", listen])
    await eventually(lambda: _lists(one, "@mine"), "one listens on an abstract socket")
    assert not await _lists(two, "@mine")


async def _lists(desktop: GuestDesktop, name: str) -> bool:
    return name in await output(desktop, "cat /proc/net/unix")


async def test_nothing_inside_holds_the_guests_socket(boot: Boot) -> None:
    """Whoever had the listening socket could pose as the guest and read the holder's token."""
    desktop = await boot(SMALL)
    processes = host_processes(desktop.address)
    guests = _sockets_of(processes["deskroll-guest"])
    assert guests
    for name, process in processes.items():
        if name != "deskroll-guest":
            assert not _sockets_of(process) & guests, f"{name} holds a socket of the guest's"


def _sockets_of(process: psutil.Process) -> set[str]:
    found = set()
    with contextlib.suppress(FileNotFoundError):  # it has ended
        for file in Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it was closed
                found.add(os.readlink(file))
    return {link for link in found if link.startswith("socket:")}


async def test_etc_changes_with_sudo_and_only_with_sudo(boot: Boot) -> None:
    desktop = await boot(SMALL)
    for change in (
        "echo x >> /etc/hosts",
        "touch /etc/new",
        "mkdir /etc/ssl/new",
        "rm -f /etc/passwd",
        "rmdir /etc/default",
    ):
        assert (await desktop.run(change)).returncode != 0, change
    sudo = "echo password | sudo -S sh -c"
    changes = (
        "echo 10.0.0.9 there >> /etc/hosts; sed -i s/localhost/local/ /etc/hosts; mkdir /etc/ssl/new; rm /etc/shells"
    )
    assert (await desktop.run(f"{sudo} '{changes}'")).returncode == 0
    assert (await output(desktop, "cat /etc/hosts")).splitlines()[0] == "127.0.0.1 local desktop"
    assert await output(desktop, "getent hosts there") == "10.0.0.9        there"
    assert await output(desktop, "ls -d /etc/ssl/new /etc/shells 2>/dev/null") == "/etc/ssl/new"


async def test_sudo_takes_the_password_and_gives_a_namespaces_root(boot: Boot) -> None:
    desktop = await boot(DesktopSpec(width=640, height=480, client_password="open sesame"))
    assert await output(desktop, "echo open sesame | sudo -S whoami") == "root"
    assert await output(desktop, "echo 'open sesame' | sudo -S -p '' id -u") == "0"
    assert await output(desktop, "echo open sesame | sudo -S sh -c 'echo hello > /etc/motd; cat /etc/motd'") == "hello"
    assert (await desktop.run("sudo touch /usr/x")).returncode != 0
    wrong = await desktop.run("sudo -k; printf 'a\\nb\\nc\\n' | sudo -S whoami")
    assert wrong.returncode == 1
    assert "3 incorrect password attempts" in wrong.error
    assert "a password is required" in (await desktop.run("sudo -k; sudo -n true")).error


async def test_programs_may_have_sandboxes_of_their_own(desktop: GuestDesktop) -> None:
    """As browsers and flatpak have: namespaces, and mounts in them."""
    bwrap = "bwrap --unshare-all --new-session --ro-bind / / --tmpfs /tmp --proc /proc --dev /dev --hostname inner"
    result = await desktop.run(f"{bwrap} sh -c 'hostname; ls /tmp; : > /dev/null; ls -d /proc/[0-9]* | wc -l'")
    assert result.output.split()[0] == "inner", result.error
    assert int(result.output.split()[-1]) < 6
    browser = "chromium --headless --disable-gpu --user-data-dir=/tmp/p --dump-dom 'data:text/html,<p>hello</p>'"
    result = await desktop.run(browser)  # without a sandbox it would refuse to start
    assert "<p>hello</p>" in result.output, result.error


async def test_system_calls_of_everything_inside_are_filtered(desktop: GuestDesktop) -> None:
    states = await output(
        desktop, "grep -h ^Seccomp: /proc/[0-9]*/status 2>/dev/null | sort | uniq -c | tr -s ' \t' ' '"
    )
    count, *filtered = states.split()
    assert filtered == ["Seccomp:", "2"]
    assert int(count) > 6


async def test_pyautogui_works_inside(desktop: GuestDesktop) -> None:
    code = "import pyautogui; pyautogui.FAILSAFE = False; pyautogui.moveTo(300, 200); print(pyautogui.position())"
    result = await desktop.run(["python", "-c", code])
    assert result.output == "Point(x=300, y=200)\n", result.error
    assert await desktop.cursor_position() == (300, 200)


@pytest.mark.skipif(not can_make_groups(), reason="needs control groups for a limit on a desktop as a whole")
async def test_a_memory_bomb_costs_the_bomb_only(boot: Boot) -> None:
    victim = await boot(DesktopSpec(width=640, height=480, memory_mb=400))
    other = await boot()
    bomb = "x = []\nwhile True: x.append(bytearray(16 << 20))"
    result = await victim.run(["python3", "-c", bomb])
    assert result.returncode != 0
    await victim.check()
    await other.check()


FORK_BOMB = """
import os, time
made = 0
try:
    while made < 10_000:
        if os.fork() == 0:
            time.sleep(1000)
        made += 1
except OSError:
    pass
print(made, flush=True)
"""


async def test_a_fork_bomb_stays_inside(boot: Boot) -> None:
    victim = await boot(DesktopSpec(width=640, height=480, processes=128))
    other = await boot()
    result = await victim.run(["python3", "-c", FORK_BOMB])
    assert 40 < int(result.output) < 128
    assert await victim.screenshot()
    await other.check()
    assert (await other.step([Typing(text="x")], settle=None)).screenshot


async def test_disk_space_is_bounded(boot: Boot) -> None:
    desktop = await boot(DesktopSpec(width=640, height=480, disk_mb=16))
    result = await desktop.run("head -c 40000000 /dev/zero > /home/user/big")
    assert "No space left" in result.error
    await desktop.screenshot()
    with pytest.raises(DesktopLost, match="no space left in /home/user"):
        await desktop.check()


async def test_stopping_leaves_nothing(provider: LocalProvider, runtime_folder: Path) -> None:
    address = await provider.boot(DesktopSpec())
    async with GuestDesktop(address) as desktop:
        await desktop.launch("setsid nohup sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' &")
        await desktop.write_file("/home/user/file", b"x" * 1_000_000)
        await desktop.launch(["mousepad"])
        await eventually(desktop.windows, "the editor is open")
    processes = list(host_processes(address).values())
    assert leftovers(address.id, runtime_folder)
    await provider.stop(address.id)
    assert leftovers(address.id, runtime_folder) == []
    assert not [process for process in processes if process.is_running()]
    await provider.stop(address.id)  # again is no error


OWNER = """
import asyncio, signal
from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.providers.local.provider import LocalProvider
from deskroll.errors import DesktopLost
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
async def main():
    async with LocalProvider() as provider:
        booted = await asyncio.gather(*(provider.boot(DesktopSpec(width=640, height=480)) for _ in range(2)))
        print(*(address.id for address in booted), flush=True)
        await asyncio.sleep(1000)
asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_owner_leaves_nothing(number: signal.Signals, runtime_folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as owner:
        assert owner.stdout is not None
        ids = owner.stdout.readline().split()
        assert len(ids) == 2
        assert all(leftovers(desktop_id, runtime_folder) for desktop_id in ids)
        owner.send_signal(number)
        owner.wait()
    for desktop_id in ids:
        wait_until(lambda i=desktop_id: not leftovers(i, runtime_folder), f"{desktop_id} is gone with its owner")


CLINGING = """
import ctypes, os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        libc = ctypes.CDLL(None, use_errno=True)
        for attack in (lambda: os.kill(1, signal.SIGSTOP), lambda: os.kill(1, signal.SIGKILL),
                       lambda: libc.ptrace(16, 1, 0, 0)):  # PTRACE_ATTACH
            try: attack()
            except OSError: pass
        open("/tmp/clings", "w").close()
        time.sleep(1000)
"""
OWNER_OF_DAEMON = """
import asyncio, sys
from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers.local.provider import LocalProvider
async def main():
    async with LocalProvider() as provider:
        address = await provider.boot(DesktopSpec(width=640, height=480))
        async with GuestDesktop(address) as desktop:
            await desktop.run(["python3", "-c", sys.argv[1]])
            await desktop.run("until test -e /tmp/clings; do sleep 0.05; done")
        print(address.id, flush=True)
        await asyncio.sleep(1000)
asyncio.run(main())
"""


def test_a_sandbox_dies_with_its_keeper_whatever_runs_inside(runtime_folder: Path) -> None:
    """Owner and keeper are killed at one moment, and a program inside has done what it could to stay."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER_OF_DAEMON, CLINGING], stdout=subprocess.PIPE, text=True
    ) as owner:
        try:
            assert owner.stdout is not None
            desktop_id = owner.stdout.readline().strip()
            note = next(note for note in places.notebook().list() if note.id == desktop_id)
            keeper = psutil.Process(note.keeper_pid)
            inside = keeper.children(recursive=True) + psutil.Process(note.sandbox_pid).children(recursive=True)
            assert any("PTRACE_ATTACH" in " ".join(process.cmdline()) for process in inside)
            keeper.suspend()  # so that it cannot clean up between the two
        finally:
            owner.kill()
        keeper.kill()
    wait_until(lambda: not [each.pid for each in inside if each.is_running()], "every process inside ends")
    subprocess.run([sys.executable, "-m", "deskroll", "desktops", "reap"], check=True, capture_output=True)
    wait_until(lambda: not leftovers(desktop_id, runtime_folder), "what they left is removed")


async def test_boot_from_a_thread_that_ends(runtime_folder: Path) -> None:
    """The kernel's parent-death signal follows threads; desktops must not."""
    started: list[str] = []
    ended = threading.Event()
    checked = threading.Event()

    def run() -> None:
        async def main() -> None:
            async with LocalProvider() as local:
                address = await local.boot(DesktopSpec(width=640, height=480))
                started.append(address.id)
                async with GuestDesktop(address) as desktop:
                    await asyncio.to_thread(lambda: None)
                    await desktop.check()
                checked.set()

        asyncio.run(main())
        ended.set()

    threading.Thread(target=run).start()
    assert await asyncio.to_thread(ended.wait, 60)
    assert checked.is_set()
    assert leftovers(started[0], runtime_folder) == []


async def test_a_cancelled_boot_leaves_nothing(runtime_folder: Path) -> None:
    """Cancelled in every phase: before the keeper runs, in the middle of bubblewrap's work, while X starts."""
    async with LocalProvider() as local:
        await local.warm_up()
        before = set((runtime_folder / "desktops").glob("*"))
        sandboxes = desktop_processes(runtime_folder)
        address = await local.boot(DesktopSpec())
        assert desktop_processes(runtime_folder) > sandboxes
        await local.stop(address.id)
        for delay_ms in (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 50, 80, 120, 160):
            booting = asyncio.create_task(local.boot(DesktopSpec()))
            await asyncio.sleep(delay_ms / 1000)
            booting.cancel()
            try:
                booted = await booting
            except asyncio.CancelledError:
                continue
            await local.stop(booted.id)  # it was faster than the cancellation
        assert set((runtime_folder / "desktops").glob("*")) == before
        assert desktop_processes(runtime_folder) <= sandboxes


async def test_a_closed_provider_boots_no_more() -> None:
    local = LocalProvider()
    await local.close()
    with pytest.raises(BootError, match="closed"):
        await local.boot(SMALL)


async def test_two_stops_wait_for_the_same_end(provider: LocalProvider, runtime_folder: Path) -> None:
    address = await provider.boot(SMALL)
    first = asyncio.create_task(provider.stop(address.id))
    await asyncio.sleep(0)
    await provider.stop(address.id)
    assert leftovers(address.id, runtime_folder) == []
    await first


async def test_the_zygote_imports_nothing_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "isal.py").write_text("raise SystemExit('code of the current folder has run')")
    monkeypatch.chdir(tmp_path)
    async with LocalProvider() as local:
        await local.warm_up()


async def test_a_failing_boot_says_why_and_leaves_nothing(
    runtime_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = runtime_folder / "bin"  # not pytest's folder: that one is closed to the user that desktops are
    fake.mkdir(exist_ok=True)
    (fake / "bwrap").write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    (fake / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake}:{os.environ['PATH']}")
    before = set((runtime_folder / "desktops").glob("*"))
    async with LocalProvider() as local:
        with pytest.raises(BootError, match=r"No permissions to create new namespace.*doctor"):
            await local.boot(DesktopSpec())
    assert set((runtime_folder / "desktops").glob("*")) == before


async def test_many_at_once(boot: Boot) -> None:
    desktops = await asyncio.gather(*(boot(DesktopSpec(width=320, height=240)) for _ in range(8)))
    shots = await asyncio.gather(*(desktop.step([], observe=Observe(tree=True)) for desktop in desktops))
    assert all(shot.screenshot and shot.tree for shot in shots)


async def test_without_a_sandbox(runtime_folder: Path) -> None:
    async with LocalProvider(LocalSettings(isolation="none")) as local:
        address = await local.boot(DesktopSpec(width=640, height=480))
        async with GuestDesktop(address) as desktop:
            await desktop.launch(["xterm", "-e", "sleep 1000"])
            await eventually(desktop.windows, "the terminal is open")
            assert (await desktop.step([Typing(text="hello")])).screenshot
            assert (await desktop.run(["python", "-c", "import pyautogui; print(pyautogui.size())"])).returncode == 0
            await desktop.launch("setsid env -i sleep 1000 &")
    assert leftovers(address.id, runtime_folder) == []


async def test_a_killed_keeper_without_a_sandbox_leaves_nothing(runtime_folder: Path) -> None:
    async with LocalProvider(LocalSettings(isolation="none")) as local:
        address = await local.boot(SMALL)
        keeper = psutil.Process(sandbox_pid(address))
        processes = keeper.children(recursive=True)
        assert {"Xvfb", "openbox"} <= {process.name() for process in processes}
        keeper.kill()
        await local.stop(address.id)

        async def gone() -> bool:
            return not [process for process in processes if process.is_running()]

        await eventually(gone, "every process of the desktop is gone")
    assert leftovers(address.id, runtime_folder) == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (DesktopSpec(width=10), "DesktopSpec.width is 10; allowed: 160 to 7680"),
        (DesktopSpec(height=99999), "DesktopSpec.height is 99999"),
        (DesktopSpec(memory_mb=1), "DesktopSpec.memory_mb is 1"),
        (DesktopSpec(snapshot="clean"), "DesktopSpec.snapshot is 'clean'"),
    ],
)
async def test_impossible_specs_are_refused(provider: LocalProvider, spec: DesktopSpec, message: str) -> None:
    with pytest.raises(InputError, match=message):
        await provider.boot(spec)


def test_unknown_isolation_is_refused() -> None:
    with pytest.raises(InputError, match=r"isolation: .*'bwrap' or 'none'.*chroot"):
        make_provider("local", {"isolation": "chroot"})
