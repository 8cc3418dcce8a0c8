"""download: fetched once, kept as OSWorld keeps it, checked, and never by accident."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deskroll.desktops.guest.client import GuestDesktop
from deskroll.envs.osworld.env import OSWorldEnv
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.envs.osworld.setup import SetupContext, bundled_files, perform
from deskroll.envs.osworld.setup.downloads import fetch
from deskroll.envs.osworld.setup.locks import hold_lock
from deskroll.errors import ConfigError, InputError, SetupError
from deskroll.tasks import parse_task
from tests.envs.osworld.conftest import Shelf
from tests.waiting import eventually

PATH = "/home/user/Desktop/a file.txt"


def step(url: str, path: str = PATH) -> dict[str, Any]:
    return {"type": "download", "parameters": {"files": [{"url": url, "path": path}]}}


def around(folder: Path, task: str = "t-1", **settings: Any) -> SetupContext:
    """With files from this machine, where our server is, unless the settings say otherwise."""
    return SetupContext(
        task, OSWorldSettings(**{"cache_dir": str(folder), "allow_private_downloads": True, **settings})
    )


def kept(folder: Path, url: str, task: str = "t-1") -> Path:
    return folder / task / f"{uuid.uuid5(uuid.NAMESPACE_URL, url)}_a file.txt"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".lock"))


async def test_a_file_is_fetched_once_and_kept_with_its_checksum(
    sim: GuestDesktop, shelf: Shelf, tmp_path: Path
) -> None:
    shelf.files["/a"] = b"hello" * 100_000
    url = f"{shelf.url}/a"
    for _ in range(2):
        await perform([step(url)], sim, around(tmp_path))
        assert await sim.read_file(PATH) == shelf.files["/a"]
    path = kept(tmp_path, url)
    assert path.read_bytes() == shelf.files["/a"]
    digest = hashlib.sha256(shelf.files["/a"]).hexdigest()
    assert path.with_name(f"{path.name}.sha256").read_text() == f"{digest}  {path.name}\n"
    assert names(tmp_path) == [path.name, f"{path.name}.sha256"]
    assert shelf.asked == {"/a": 1}
    checked = subprocess.run(["sha256sum", "-c", f"{path.name}.sha256"], cwd=path.parent, check=False)
    assert checked.returncode == 0


async def test_a_file_that_comes_with_the_task(sim: GuestDesktop, tmp_path: Path) -> None:
    (tmp_path / "suite" / "inputs").mkdir(parents=True)
    (tmp_path / "suite" / "inputs" / "a.txt").write_text("here")
    (tmp_path / "secret").write_text("not here")
    (tmp_path / "suite" / "link").symlink_to(tmp_path / "secret")
    own = replace(around(tmp_path / "cache", offline=True), folder=tmp_path / "suite")
    await perform([step("inputs/a.txt")], sim, own)
    assert await sim.read_file(PATH) == b"here"
    assert not (tmp_path / "cache").exists()
    for outside in ("../secret", "link", str(tmp_path / "secret")):
        with pytest.raises(SetupError, match="is outside the folder of the tasks"):
            await perform([step(outside)], sim, own)
    (tmp_path / "suite" / ".env").write_text("KEY=secret")
    for hidden in (".env", ".git/config", "inputs/.b", "a\0b"):
        with pytest.raises(SetupError, match="a name in it is hidden"):
            await perform([step(hidden)], sim, own)
    with pytest.raises(SetupError, match="is not an address: Invalid IPv6 URL"):
        await perform([step("http://[::1/x")], sim, own)
    with pytest.raises(
        SetupError, match=r"'inputs/b.txt' is not an address, and there is no file .*suite/inputs/b.txt"
    ):
        await perform([step("inputs/b.txt")], sim, own)
    with pytest.raises(SetupError, match="the task has no folder"):
        await perform([step("inputs/a.txt")], sim, around(tmp_path))


def test_what_comes_with_tasks_is_looked_at_before_a_run(tmp_path: Path) -> None:
    task = parse_task({"id": "t", "instruction": "Do it.", "config": [step("a.txt")]}, "here")
    with pytest.raises(InputError, match=r"task 't': 'a.txt' is not an address, and there is no file"):
        OSWorldEnv.prepare([task], OSWorldSettings(), tmp_path)
    (tmp_path / "a.txt").write_text("one")
    first = OSWorldEnv.prepare([task], OSWorldSettings(), tmp_path)
    (tmp_path / "a.txt").write_text("two")
    assert first != OSWorldEnv.prepare([task], OSWorldSettings(), tmp_path) != ""
    assert OSWorldEnv.prepare([], OSWorldSettings(), tmp_path) == ""


GOLD = {"type": "cloud_file", "path": "a.txt", "dest": "gold.txt"}
FILE = {"type": "vm_file", "path": "/home/user/a.txt", "dest": "a.txt"}
UPLOAD = {"operation": ["mkdirs", "upload"], "args": [{"path": "b"}, {"path": "b/a.txt", "url": "a.txt"}]}


@pytest.mark.parametrize(
    "fields",
    [
        {"evaluator": {"func": "compare_text_file", "result": FILE, "expected": GOLD}},
        {"evaluator": {"func": "compare_text_file", "result": GOLD, "expected": {**GOLD, "path": "https://a.invalid/"}}},
        {"evaluator": {
            "func": ["compare_text_file"] * 2, "result": [FILE] * 2,
            "expected": [{"type": "rule", "rules": {}}, {**GOLD, "multi": True, "path": ["a.txt"], "dest": ["a"]}],
        }},
        {"evaluator": {"func": "infeasible", "postconfig": [step("a.txt")]}},
        {"config": [{"type": "googledrive", "parameters": UPLOAD}]},
    ],
    ids=["expected", "result", "one of several", "postconfig", "drive"],
)  # fmt: skip
def test_what_evaluators_and_drives_get_comes_with_tasks_too(fields: dict[str, Any], tmp_path: Path) -> None:
    task = parse_task({"id": "t", "instruction": "Do it.", **fields}, "here")
    with pytest.raises(SetupError, match=r"'a.txt' is not an address, and there is no file"):
        list(bundled_files(task, tmp_path))
    (tmp_path / "a.txt").write_text("one")
    assert list(bundled_files(task, tmp_path)) == [(tmp_path / "a.txt").resolve()]


async def test_attempts_at_the_same_time_fetch_once(sim: GuestDesktop, shelf: Shelf, tmp_path: Path) -> None:
    shelf.files["/a"] = b"hello"
    shelf.gate.clear()
    tasks = [asyncio.create_task(perform([step(f"{shelf.url}/a")], sim, around(tmp_path))) for _ in range(8)]

    async def asked() -> int:
        return shelf.asked["/a"]

    await eventually(asked, "somebody asks")
    shelf.gate.set()
    await asyncio.gather(*tasks)
    assert shelf.asked["/a"] == 1


_OTHER = """
import asyncio, sys
from pathlib import Path
from deskroll.envs.osworld.env import OSWorldEnv
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.envs.osworld.setup import SetupContext
from deskroll.envs.osworld.setup.downloads import fetch
from deskroll.envs.osworld.setup.locks import hold_lock

settings = OSWorldSettings(cache_dir=sys.argv[2], allow_private_downloads=True)
print(asyncio.run(fetch(sys.argv[1], "a file.txt", SetupContext("t-1", settings))))
"""


async def test_processes_at_the_same_time_fetch_once(shelf: Shelf, tmp_path: Path) -> None:
    shelf.files["/a"] = b"hello"
    command = [sys.executable, "-c", _OTHER, f"{shelf.url}/a", str(tmp_path)]
    running = [await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE) for _ in range(3)]
    said = await asyncio.gather(*(process.communicate() for process in running))
    assert [out for out, _ in said] == [b"b'hello'\n"] * 3
    assert shelf.asked["/a"] == 1


async def test_who_is_cancelled_leaves_nothing_and_the_next_one_fetches(
    sim: GuestDesktop, shelf: Shelf, tmp_path: Path
) -> None:
    shelf.files["/a"] = b"hello"
    shelf.gate.clear()
    first = asyncio.create_task(perform([step(f"{shelf.url}/a")], sim, around(tmp_path)))

    async def begun() -> list[Path]:
        return list(tmp_path.rglob(".part-*"))

    await eventually(begun, "the file is being written")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert names(tmp_path) == []
    shelf.gate.set()
    await perform([step(f"{shelf.url}/a")], sim, around(tmp_path))
    assert await sim.read_file(PATH) == b"hello"


async def test_offline_the_cache_is_used_and_what_it_lacks_is_named(
    sim: GuestDesktop, shelf: Shelf, tmp_path: Path
) -> None:
    url = f"{shelf.url}/a"
    path = kept(tmp_path, url)
    with pytest.raises(SetupError) as caught:
        await perform([step(url)], sim, around(tmp_path, offline=True))
    assert str(caught.value) == (
        f"task 't-1', set-up step 0 (download): {url} is not in the cache, and offline is set; put the file at {path}"
    )
    assert not tmp_path.joinpath("t-1").exists()
    path.parent.mkdir()
    path.write_bytes(b"put here by hand")
    await perform([step(url)], sim, around(tmp_path, offline=True))
    assert await sim.read_file(PATH) == b"put here by hand"
    assert path.with_name(f"{path.name}.sha256").is_file()
    assert not shelf.asked


async def test_a_file_that_was_changed_is_not_used(sim: GuestDesktop, shelf: Shelf, tmp_path: Path) -> None:
    shelf.files["/a"] = b"hello"
    await perform([step(f"{shelf.url}/a")], sim, around(tmp_path))
    kept(tmp_path, f"{shelf.url}/a").write_bytes(b"hell")
    with pytest.raises(SetupError, match=r"is not what .*sha256 says: it was changed or damaged; remove both"):
        await perform([step(f"{shelf.url}/a")], sim, around(tmp_path))


async def test_mirrors_stand_for_addresses_and_the_longest_wins(
    sim: GuestDesktop, shelf: Shelf, tmp_path: Path
) -> None:
    shelf.files["/copy/b"] = b"from the mirror"
    folder = tmp_path / "a folder"
    folder.mkdir()
    folder.joinpath("c d").write_bytes(b"from the folder")
    mirrors = {
        "https://files.invalid/": f"{shelf.url}/copy/",
        "https://files.invalid/deep/": f"{folder.as_uri()}/",
    }
    cache = tmp_path / "cache"
    await perform([step("https://files.invalid/b")], sim, around(cache, mirrors=mirrors))
    assert await sim.read_file(PATH) == b"from the mirror"
    assert kept(cache, "https://files.invalid/b").is_file(), "it is called by its own address"
    deep = "https://files.invalid/deep/c%20d"
    await perform([step(deep)], sim, around(cache, mirrors=mirrors, offline=True))
    assert await sim.read_file(PATH) == b"from the folder"
    with pytest.raises(SetupError, match="is not there; it stands for an address by way of mirrors"):
        await perform([step("https://files.invalid/deep/e")], sim, around(cache, mirrors=mirrors))


@pytest.mark.parametrize(
    "rest",
    [
        "../secret.txt", "%2e%2e/secret.txt", "..%2fsecret.txt", "in/..%2F../%2E%2E/%2e./secret.txt", "/../secret.txt",
        "in/../../mirror-2/secret.txt", "link.txt", "links/secret.txt", "..",
    ],
)  # fmt: skip
async def test_a_task_reads_nothing_outside_its_mirror(rest: str, sim: GuestDesktop, tmp_path: Path) -> None:
    mirror = tmp_path / "mirror"
    for folder in (mirror / "in", tmp_path / "mirror-2"):
        folder.mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "mirror-2"):
        folder.joinpath("secret.txt").write_text("secret")
    mirror.joinpath("link.txt").symlink_to(tmp_path / "secret.txt")
    mirror.joinpath("links").symlink_to(tmp_path)
    mirror.joinpath("here.txt").write_text("here")
    # Once as a folder, once as the beginning of an address, to which anything might be added.
    for prefix, instead in (("https://files.invalid/", f"{mirror.as_uri()}/"), ("https://files.invalid", "")):
        own = around(tmp_path / "cache", mirrors={prefix: instead or mirror.as_uri()}, offline=True)
        with pytest.raises(SetupError, match=r"https://files.invalid/.* leads out of its mirror, file:///"):
            await perform([step(f"https://files.invalid/{rest}")], sim, own)
        await perform([step("https://files.invalid/in/../here.txt")], sim, own)
        assert await sim.read_file(PATH) == b"here"
    own = around(tmp_path / "cache", mirrors={"https://files.invalid": mirror.as_uri()})
    with pytest.raises(SetupError, match="leads out of its mirror"):
        await perform([step("https://files.invalid-2/secret.txt")], sim, own)
    with pytest.raises(SetupError, match="is not an address: embedded null"):
        await perform([step("https://files.invalid/%00")], sim, own)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://files.invalid/a", "/etc/passwd", "a", "http://"])
async def test_an_address_that_cannot_be_fetched(url: str, sim: GuestDesktop, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="is not an address"):
        await perform([step(url)], sim, around(tmp_path))
    assert names(tmp_path) == []


async def test_a_folder_of_a_mirror_that_becomes_a_link_meanwhile_leads_nowhere(tmp_path: Path) -> None:
    folder, outside, url = tmp_path / "mirror" / "in", tmp_path / "outside", "https://files.invalid/in/a"
    for each, text in ((folder, "public"), (outside, "secret")):
        each.mkdir(parents=True)
        (each / "a").write_text(text)
    own = around(tmp_path / "cache", mirrors={"https://files.invalid/": f"{tmp_path.as_uri()}/mirror/"})
    path = kept(tmp_path / "cache", url)
    path.parent.mkdir(parents=True)
    async with hold_lock(path.with_name(f".{path.name}.lock")):  # so that it has to wait, as for another who fetches it
        fetching = asyncio.create_task(fetch(url, "a file.txt", own))
        await asyncio.sleep(0)
        folder.rename(tmp_path / "mirror" / "was")
        folder.symlink_to(outside)
    with pytest.raises(SetupError, match="leads out of its mirror"):
        await fetching
    assert names(tmp_path / "cache") == []


async def test_a_passing_failure_is_tried_again_and_a_lasting_one_is_not(
    sim: GuestDesktop, shelf: Shelf, tmp_path: Path
) -> None:
    shelf.files["/a"] = b"hello"
    shelf.failing["/a"] = [503]
    await perform([step(f"{shelf.url}/a")], sim, around(tmp_path))
    assert shelf.asked["/a"] == 2
    with pytest.raises(SetupError, match="/gone answers 404; a mirror can be set"):
        await perform([step(f"{shelf.url}/gone")], sim, around(tmp_path))
    assert shelf.asked["/gone"] == 1
    shelf.failing["/bad"] = [500] * 9
    with pytest.raises(SetupError, match=r"/bad could not be fetched, in 3 tries: .* answers 500"):
        await perform([step(f"{shelf.url}/bad")], sim, around(tmp_path))
    assert shelf.asked["/bad"] == 3


async def test_limits_of_size_and_time(sim: GuestDesktop, shelf: Shelf, tmp_path: Path) -> None:
    shelf.files["/large"] = bytes(1024 * 1024 + 1)
    with pytest.raises(SetupError, match=r"/large has more than 1 MiB \(download_max_mb\)"):
        await perform([step(f"{shelf.url}/large")], sim, around(tmp_path, download_max_mb=1))
    shelf.gate.clear()
    with pytest.raises(SetupError, match=r"/large did not arrive within 0.2 s \(download_timeout\)"):
        await perform([step(f"{shelf.url}/large")], sim, around(tmp_path, download_timeout=0.2))
    assert names(tmp_path) == []
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "large").write_bytes(shelf.files["/large"])
    small = around(tmp_path / "cache", download_max_mb=1, mirrors={"https://m.invalid/": f"{tmp_path.as_uri()}/suite/"})
    with pytest.raises(SetupError, match=r"'large' has more than 1048576 bytes"):
        await perform([step("large")], sim, replace(small, folder=tmp_path / "suite"))
    with pytest.raises(SetupError, match=r"/suite/large has more than 1 MiB \(download_max_mb\)"):
        await perform([step("https://m.invalid/large")], sim, small)


async def test_a_task_of_an_odd_name_stays_in_the_cache(sim: GuestDesktop, shelf: Shelf, tmp_path: Path) -> None:
    shelf.files["/a"] = b"hello"
    cache = tmp_path / "cache"
    await perform([step(f"{shelf.url}/a")], sim, around(cache, task="../../out"))
    assert [path.parent for path in cache.iterdir()] == [cache]
    assert list(tmp_path.iterdir()) == [cache]


async def test_a_cache_that_cannot_be_made(sim: GuestDesktop, shelf: Shelf, tmp_path: Path) -> None:
    tmp_path.joinpath("cache").write_text("a file")
    with pytest.raises(SetupError, match=r"Not a directory|File exists"):
        await perform([step(f"{shelf.url}/a")], sim, around(tmp_path / "cache"))


@pytest.mark.parametrize("mirror", ["ftp://x/", "x", ""])
def test_a_mirror_that_is_none(mirror: str) -> None:
    with pytest.raises(ConfigError, match="must be an address with http, https or file"):
        OSWorldSettings(mirrors={"https://a/": mirror})


GUARDED = {"allow_private_downloads": False, "download_timeout": 30.0}


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "127.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "169.254.169.254", "10.0.0.1",
     "2130706433", "localhost.", "nas", "168.63.129.16"],
)  # fmt: skip
async def test_a_task_has_nothing_fetched_from_this_machine_or_its_network(
    host: str, sim: GuestDesktop, shelf: Shelf, tmp_path: Path
) -> None:
    shelf.files["/a"] = b"secret"
    url = f"http://{host}:{shelf.url.rpartition(':')[2]}/a"
    with pytest.raises(SetupError, match=r"is not fetched: .* set allow_private_downloads, or name a mirror"):
        await perform([step(url)], sim, around(tmp_path, **GUARDED))
    assert not shelf.asked
    assert names(tmp_path) == []


async def test_nor_what_an_evaluator_compares_with(sim: GuestDesktop, shelf: Shelf, tmp_path: Path) -> None:
    shelf.files["/a"] = b"secret"
    with pytest.raises(SetupError, match="is not fetched"):
        await fetch(f"{shelf.url}/a", "gold.txt", around(tmp_path, **GUARDED))
    assert not shelf.asked


async def test_a_mirror_may_be_here_and_its_redirects_lead_to_no_other_place(
    sim: GuestDesktop, shelf: Shelf, tmp_path: Path
) -> None:
    shelf.files["/copy/a"] = b"from the mirror"
    shelf.redirects = {"/copy/same": "/copy/a", "/copy/other": f"http://127.0.0.1:{_closed_port()}/secret"}
    mirrors = {"https://files.invalid/": f"{shelf.url}/copy/"}
    for name in ("a", "same"):
        await perform([step(f"https://files.invalid/{name}")], sim, around(tmp_path, mirrors=mirrors, **GUARDED))
        assert await sim.read_file(PATH) == b"from the mirror"
    with pytest.raises(SetupError, match=r"/secret is not fetched: 127.0.0.1 is not a public address"):
        await perform([step("https://files.invalid/other")], sim, around(tmp_path, mirrors=mirrors, **GUARDED))


async def test_redirects_come_to_an_end(sim: GuestDesktop, shelf: Shelf, tmp_path: Path) -> None:
    shelf.redirects = {"/round": "/round"}
    with pytest.raises(SetupError, match="redirects more than 10 times"):
        await perform([step(f"{shelf.url}/round")], sim, around(tmp_path))


async def test_a_proxy_of_the_environment_is_asked_for_public_files_alone(
    sim: GuestDesktop, shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", shelf.url)
    monkeypatch.delenv("no_proxy", raising=False)
    shelf.files["/a"] = b"by way of the proxy"
    await perform([step("http://files.example/a")], sim, around(tmp_path, **GUARDED))
    assert await sim.read_file(PATH) == b"by way of the proxy"
    with pytest.raises(SetupError, match="is not fetched"):
        await perform([step("http://127.0.0.1:1/a")], sim, around(tmp_path, **GUARDED))
    assert shelf.asked["/a"] == 1


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
