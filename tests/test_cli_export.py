"""`deskroll export` and `deskroll replay`, as a person calls them."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image

from deskroll.store import RunInfo, RunStore
from deskroll.store.journal import Planned, Started
from deskroll.types import EpisodeKey
from tests.commands import Commands, Ended, clean_environment
from tests.report.conftest import full_run
from tests.waiting import wait_until

__all__ = ["full_run"]

needs_local = pytest.mark.skipif(shutil.which("bwrap") is None, reason="embedded desktops cannot run here")


class Shell:
    """Commands in one folder."""

    def __init__(self, commands: Commands, folder: Path, env: dict[str, str]) -> None:
        self._commands, self.folder, self._env = commands, folder, env

    def __call__(self, *args: str, code: int = 0) -> Ended:
        ended = self._commands(*args, cwd=self.folder, env=self._env)
        assert ended.code == code, ended.out + ended.err
        assert "Traceback" not in ended.err
        return ended

    def json(self, *args: str, code: int = 0) -> Any:
        return json.loads(self(*args, "--json", code=code).out)


@pytest.fixture
def shell(deskroll: Commands, env: dict[str, str], tmp_path: Path) -> Shell:
    return Shell(deskroll, tmp_path, env)


def results(tree: Path) -> list[float]:
    return [float(each.read_text()) for each in tree.rglob("result.txt")]


def test_the_osworld_tree_agrees_with_the_report(shell: Shell, full_run: Path) -> None:
    said = shell.json("export", str(full_run), "--to", "osworld", "--output", "out")
    report = shell.json("report", str(full_run))
    scores = results(shell.folder / "out")
    assert said["written"] == report["overall"]["attempted"]
    assert len(scores) == report["overall"]["scored"]
    assert sum(scores) / len(scores) == pytest.approx(report["overall"]["mean_score"]["value"])
    trees = {path.parent for path in (shell.folder / "out").glob("sample_*/computer_13/screenshot_a11y_tree/qwen-vl")}
    assert len(trees) == 2


def test_a_folder_that_is_not_empty_is_refused_and_forced(shell: Shell, full_run: Path) -> None:
    command = ("export", str(full_run), "--to", "osworld", "--output", "out", "--task", "os-002")
    assert "2 episodes written: out" in shell(*command).out
    assert "holds a finished export of run full-run (--to osworld --task os-002)" in shell(*command, code=2).err
    shell(*command, "--force", "--model-name", "../my model")
    assert len(list((shell.folder / "out").glob("sample_*/computer_13/*/%2E.%2Fmy%20model/os/os-002/traj.jsonl"))) == 2
    assert len(results(shell.folder / "out")) <= 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("nowhere", "--to", "osworld", "--output", "out"), "is not a run and holds none"),
        (("RUN", "--to", "csv", "--output", "out"), "is not one of"),
        (("RUN", "--to", "osworld"), "--output"),
        (("RUN", "--to", "osworld", "--output", "out", "--fps", "3"), "--fps belongs to --to video"),
        (("RUN", "--to", "parquet", "--output", "out", "--task", "none"), "has no outcome of a task 'none'"),
        (("RUN", "--to", "parquet", "--output", "RUN/out"), "is inside the run"),
        (("RUN", "--to", "parquet", "--output", "PARENT/x/../NAME/out"), "is inside the run"),
        (("RUN", "--to", "parquet", "--output", "link/out"), "is inside the run"),
        (
            ("RUN", "--to", "parquet", "--output", "s3://bucket/out"),
            "s3://bucket/out: an export is written to a folder",
        ),
        (
            ("RUN", "--to", "parquet", "--output", "az://bucket/out"),
            "az://bucket/out: an export is written to a folder",
        ),
        (("RUN", "--to", "parquet", "--output", "RUN/run.json"), "is a file"),
        (("RUN", "--to", "video", "--output", "out", "--seconds-a-step", "5", "1"), "the shortest comes first"),
        (("RUN", "--to", "video", "--output", "out", "--seconds-a-step", "1", "5", "--fps", "1"), "give one of them"),
    ],
)
def test_wrong_input_is_one_message(shell: Shell, full_run: Path, args: tuple[str, ...], said: str) -> None:
    (shell.folder / "link").symlink_to(full_run)
    names = {"RUN": str(full_run), "PARENT": str(full_run.parent), "NAME": full_run.name}
    given = (re.sub("RUN|PARENT|NAME", lambda found: names[found[0]], each) for each in args)
    ended = shell("export", *given, code=2)
    assert said in ended.err
    assert [each.name for each in shell.folder.iterdir()] == ["link"]


def test_a_folder_beside_the_run_may_be_named_by_way_of_it(shell: Shell, full_run: Path) -> None:
    shutil.copytree(full_run, shell.folder / "run")
    shell("export", "run", "--to", "osworld", "--output", "run/../out", "--task", "os-002")
    assert (shell.folder / "out" / "export.json").exists()


def test_tables_and_films(shell: Shell, full_run: Path) -> None:
    said = shell.json("export", str(full_run), "--to", "parquet", "--output", "tables", "--screens")
    assert said["written"] == 56
    assert (shell.folder / "tables" / "screens.parquet").stat().st_size > 10_000
    said = shell.json("export", str(full_run), "--to", "video", "--output", "films", "--task", "vlc-003", "--fps", "2")
    assert said["written"] == len(list((shell.folder / "films").rglob("recording.mp4"))) == 2


def test_a_damaged_episode_is_told(shell: Shell, full_run: Path) -> None:
    shutil.copytree(full_run, shell.folder / "run")
    next((shell.folder / "run").rglob("steps.jsonl")).write_text("{\n{}\n")
    ended = shell("export", "run", "--to", "osworld", "--output", "out", code=1)
    assert "left out: " in ended.err
    assert "1 could not be read" in ended.out


def test_help_has_examples(shell: Shell) -> None:
    assert "deskroll export results/my-run --to parquet" in shell("export", "--help").out
    assert "deskroll replay results/my-run --task note" in shell("replay", "--help").out


async def test_a_task_in_two_rounds_is_named_by_its_folder(shell: Shell) -> None:
    async with RunStore.create(shell.folder / "run", RunInfo(run_id="run")) as store:
        for number in (0, 1):
            key = EpisodeKey(phase="train", round=number, task="note", sample=0)
            store.write(Planned(phase="train", round=number, task="note", samples=1))
            store.write(Started(key=key, attempt=1, epoch=1))
    said = "2 episodes of sample 0 of task 'note' (phase/round: train/0, train/1): name it whole, "
    assert said in shell("replay", "run", code=2).err
    assert said in shell("replay", "run", "--task", "note", code=2).err


async def test_of_several_tasks_one_must_be_said(shell: Shell) -> None:
    async with RunStore.create(shell.folder / "run", RunInfo(run_id="run")) as store:
        for task, number in (("note", 0), ("note", 1), ("paint", 0)):
            store.write(Planned(phase="train", round=number, task=task, samples=1))
            store.write(Started(key=EpisodeKey(phase="train", round=number, task=task, sample=0), attempt=1, epoch=1))
    assert "3 episodes of sample 0 (note, paint): say which task" in shell("replay", "run", code=2).err


TASK = {
    "id": "note", "instruction": "Write hello.", "domain": "editor",
    "config": [{"type": "execute", "parameters": {"command": ["touch", "/home/user/note.txt"]}},
               {"type": "open", "parameters": {"path": "/home/user/note.txt"}}],
    "solution": [{"action_type": "TYPING", "parameters": {"text": "hello"}},
                 {"action_type": "HOTKEY", "parameters": {"keys": ["ctrl", "s"]}}, "DONE"],
    "evaluator": {"func": "exact_match", "result": {"type": "vm_command_line", "command": "cat ~/note.txt"},
                  "expected": {"type": "rule", "rules": {"expected": "hello"}}},
}  # fmt: skip


@pytest.fixture(scope="module")
def played(deskroll: Commands, tmp_path_factory: pytest.TempPathFactory, runtime_folder: Path) -> Path:
    """A folder with a run of one task on an embedded desktop."""
    folder = tmp_path_factory.mktemp("played")
    (folder / "tasks.json").write_text(json.dumps([TASK]))
    ended = deskroll(
        "run", "tasks.json", "--agent", "oracle", "--provider", "local", "--num-vms", "1", "--set", "run_id=run",
        "--set", "env_options.screen_width=800", "--set", "env_options.screen_height=600", "--json",
        cwd=folder, env=clean_environment(runtime_folder),
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["overall"]["successes"] == 1
    return folder


@pytest.fixture
def desktops(deskroll: Commands, tmp_path: Path, runtime_folder: Path) -> Shell:
    """Commands that may start desktops: their users must be able to enter the runtime folder."""
    return Shell(deskroll, tmp_path, clean_environment(runtime_folder))


def copied(played: Path, shell: Shell) -> Path:
    """The run and its tasks, in the shell's own folder."""
    run = shell.folder / "results" / "run"
    shutil.copytree(played / "results" / "run", run)
    (shell.folder / "tasks.json").write_text((played / "tasks.json").read_text())
    return run


@needs_local
def test_a_replay_shows_the_same_and_scores_the_same(desktops: Shell, played: Path) -> None:
    run = copied(played, desktops)
    said = desktops.json("replay", str(run), "--score")
    assert (said["same"], said["first_difference"], said["failure"]) == (True, None, None)
    assert (said["stored_score"], said["score"]) == (1.0, 1.0)
    assert [each["step"] for each in said["screens"]] == [0, 1]
    assert sorted(each.name for each in (run / "episodes" / "eval" / "0" / "note" / "0").iterdir()) == ["1"]


@needs_local
def test_a_replay_says_where_the_screens_differ(desktops: Shell, played: Path) -> None:
    attempt = copied(played, desktops) / "episodes" / "eval" / "0" / "note" / "0" / "1"
    steps = [json.loads(line) for line in (attempt / "steps.jsonl").read_text().splitlines()]
    with Image.open(attempt / steps[1]["screen"]) as picture:
        changed = picture.convert("RGB")
    changed.paste((255, 0, 255), (100, 200, 200, 260))
    changed.save(attempt / steps[1]["screen"])
    ended = desktops("replay", str(attempt), "--output", "differences", code=1)
    assert "after step 1: " in ended.out
    assert "within 100x60 at (100, 200)" in ended.out
    assert "the first difference is after step 1" in ended.out
    assert [each.name for each in (desktops.folder / "differences").iterdir()] == ["step_1.png"]
    assert "is not empty" in desktops("replay", str(attempt), "--output", "differences", code=2).err


@needs_local
def test_what_cannot_be_replayed_is_refused(desktops: Shell, played: Path) -> None:
    run = copied(played, desktops)
    attempt = run / "episodes" / "eval" / "0" / "note" / "0" / "1"
    assert "no episode of task 'x', sample 0" in desktops("replay", str(run), "--task", "x", code=2).err
    assert "no episode of task '', sample 3" in desktops("replay", str(run), "--sample", "3", code=2).err
    assert "has no attempt 7" in desktops("replay", str(run), "--attempt", "7", code=2).err
    assert "go with a run" in desktops("replay", str(attempt), "--task", "note", code=2).err
    assert "is not a run and holds none" in desktops("replay", "tasks", code=2).err
    assert "there is no provider 'nope'" in desktops("replay", str(run), "--provider", "nope", code=2).err
    steps = [json.loads(line) for line in (attempt / "steps.jsonl").read_text().splitlines()]
    (attempt / "steps.jsonl").write_text("".join(f"{json.dumps(step | {'screen': ''})}\n" for step in steps))
    shutil.rmtree(attempt / "screens")
    assert "there is nothing to compare; --score" in desktops("replay", str(run), code=2).err


@needs_local
def test_a_changed_task_is_refused(desktops: Shell, played: Path) -> None:
    task = json.loads((played / "tasks.json").read_text())[0]
    run = copied(played, desktops)
    info = json.loads((run / "run.json").read_text())
    info["config"]["tasks"] = str(desktops.folder / "tasks.json")
    (run / "run.json").write_text(json.dumps(info))
    (desktops.folder / "tasks.json").write_text(json.dumps([task | {"instruction": "Write bye."}]))
    assert "is not what it was" in desktops("replay", str(run), code=2).err
    (desktops.folder / "tasks.json").write_text(json.dumps([task | {"id": "another"}]))
    assert "has no task 'note' any more" in desktops("replay", str(run), code=2).err
    (run / "episodes" / "eval" / "0" / "note" / "0" / "1" / "steps.jsonl").write_text("")
    (desktops.folder / "tasks.json").write_text(json.dumps([task]))
    assert "nothing was done in it" in desktops("replay", str(run), code=2).err


TERM, HUP, INT = signal.SIGTERM, signal.SIGHUP, signal.SIGINT


@pytest.mark.parametrize("signals", [[TERM], [HUP], [INT, INT]], ids=["term", "hup", "twice"])
def test_a_replay_that_is_stopped_leaves_nothing(shell: Shell, env: dict[str, str], signals: list[int]) -> None:
    attempt = played_by_sim(shell)
    steps = [json.loads(line) for line in (attempt / "steps.jsonl").read_text().splitlines()]
    steps[1]["actions"] = [{"type": "WAIT", "seconds": 60.0}]
    (attempt / "steps.jsonl").write_text("".join(f"{json.dumps(step)}\n" for step in steps))
    scratch, log = shell.folder / "scratch", shell.folder / "stderr"
    scratch.mkdir()
    command = [sys.executable, "-m", "deskroll", "replay", str(attempt)]
    with log.open("w") as errors, subprocess.Popen(
        command, cwd=shell.folder, env=env | {"TMPDIR": str(scratch)}, stdout=errors, stderr=errors,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            wait_until(lambda: list(scratch.glob("deskroll-replay-*/**/screens/*")), "the desktop was seen")
            family = psutil.Process(process.pid).children(recursive=True)
            for n, number in enumerate(signals):
                process.send_signal(number)
                wait_until(lambda n=n: log.read_text().count("stopping") > n, "the signal is taken")
            assert process.wait(30) == 130, log.read_text()
        finally:
            process.kill()
    assert log.read_text().endswith("interrupted\n")
    assert "Traceback" not in log.read_text()
    assert list(scratch.iterdir()) == []
    assert psutil.wait_procs(family, timeout=30)[1] == []


def played_by_sim(shell: Shell) -> Path:
    """The attempt of a run on a simulated desktop."""
    solution = [{"action_type": "CLICK", "x": 5, "y": 6}, "WAIT", "DONE"]
    (shell.folder / "tasks.json").write_text(json.dumps([TASK | {"config": [], "solution": solution}]))
    shell(
        "run", "tasks.json", "--agent", "oracle", "--provider", "sim", "--num-vms", "1", "--set", "run_id=run",
        "--set", "evaluate=false",
    )  # fmt: skip
    return shell.folder / "results" / "run" / "episodes" / "eval" / "0" / "note" / "0" / "1"


@pytest.mark.parametrize("to", ["osworld", "parquet", "video"])
@pytest.mark.parametrize("gone", ["", "episode.json", "steps.jsonl"])
def test_an_attempt_whose_files_are_gone_is_named(shell: Shell, full_run: Path, to: str, gone: str) -> None:
    shutil.copytree(full_run, shell.folder / "run")
    attempt = next((shell.folder / "run").glob("episodes/*/0/os-002/0/*/episode.json")).parent
    if gone:
        (attempt / gone).unlink()
    else:
        shutil.rmtree(attempt)
    ended = shell("export", "run", "--to", to, "--output", "out", "--task", "os-002", code=1)
    assert f"left out: {attempt}: " in ended.err
    assert f"{gone} is missing" in ended.err or (not gone and "it is gone" in ended.err)
    assert "1 episode written, 1 could not be read" in ended.out
