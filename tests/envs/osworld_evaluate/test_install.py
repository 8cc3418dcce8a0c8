"""`deskroll osworld`: what it says of an environment that is not there, and of one that is."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from deskroll.envs.osworld.evaluate.upstream.names import VERSION
from deskroll.envs.osworld.evaluate.upstream.place import (
    LOCK,
    environment_folder,
    find_environment,
    missing,
    write_mark,
)
from tests.waiting import wait_until


def deskroll(*words: str, data: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_DATA_HOME": data}
    command = [sys.executable, "-m", "deskroll", "osworld", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_what_is_not_there_says_what_to_run(tmp_path: Path) -> None:
    done = deskroll("check", "--json", data=str(tmp_path))
    assert done.returncode == 2
    assert "run: deskroll osworld install" in done.stderr
    assert json.loads(done.stdout) == {"installed": False, "folder": str(tmp_path / "deskroll" / f"osworld-{VERSION}")}


def test_a_half_made_one_is_not_there(tmp_path: Path) -> None:
    folder = tmp_path / "deskroll" / f"osworld-{VERSION}"
    folder.mkdir(parents=True)
    for text in ("", "{}", '{"version": "1.0.2", "lock": "another"}'):
        (folder / "installed.json").write_text(text)
        assert deskroll("check", data=str(tmp_path)).returncode == 2


def test_one_of_another_python_is_not_there_and_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    folder = environment_folder()
    (folder / "lib" / "python2.7").mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    write_mark(folder)
    assert find_environment() == folder
    written = json.loads((folder / "installed.json").read_text())
    (folder / "installed.json").write_text(json.dumps({**written, "python": "2.7"}))
    assert find_environment() is None
    assert "are installed for Python 2.7, and this is Python 3" in missing()
    done = deskroll("install", data=str(tmp_path))
    assert done.returncode == 2  # no index to take packages from
    assert "anew: another Python made it" in done.stdout
    assert not (folder / "lib" / "python2.7").exists()


def test_two_that_install_at_once_take_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    folder = environment_folder()
    folder.mkdir(parents=True)
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, "-m", "deskroll", "osworld", "install", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as second:
            wait_until(lambda: _waits_for(second.pid, lock), "the second waits")
            write_mark(folder)
            fcntl.flock(lock, fcntl.LOCK_UN)
            said, _ = second.communicate(timeout=120)
    assert json.loads(said)["fresh"] is False


def _waits_for(pid: int, lock: IO[str]) -> bool:
    """Whether the process stands in the queue for a lock: `1: -> FLOCK  ADVISORY  WRITE 7 08:01:99 0 EOF`."""
    waiting = [line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" in line]
    inode = str(os.fstat(lock.fileno()).st_ino)
    return any(words[5] == str(pid) and words[6].endswith(f":{inode}") for words in waiting)


def test_every_version_is_exact() -> None:
    lines = [line for line in LOCK.read_text().splitlines() if not line.startswith("#")]
    assert all(line.count("==") == 1 for line in lines)
    assert any(line.lower().replace("_", "-") == f"desktop-env=={VERSION}" for line in lines)


def test_what_is_installed_is_left_alone() -> None:
    folder = find_environment()
    if folder is None:
        pytest.skip("OSWorld's evaluators are not installed: deskroll osworld install")
    data = str(folder.parents[1])
    done = deskroll("install", "--json", data=data)
    assert (done.returncode, json.loads(done.stdout)["fresh"]) == (0, False)
    assert json.loads(deskroll("check", "--json", data=data).stdout)["installed"] is True
