"""`import deskroll`: its public names, `deskroll.run` in scripts, threads and running loops, and the page about it."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import deskroll
from deskroll.config import load
from deskroll.rollout.config import RunConfig
from deskroll.store import RunStore
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent
ANSWERS = "replies:\n  - turns: [{text: '42'}]\n"
TASKS = [{"id": f"t{n}", "question": f"What is 6*7? ({n})", "answer": "42"} for n in range(3)]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a script."""
    (tmp_path / "answers.yaml").write_text(ANSWERS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(tasks: Any = TASKS, **settings: Any) -> deskroll.Episodes:
    given = {"env": "math", "model": "scripted:answers.yaml", "backend": "inline", "progress": False, **settings}
    return deskroll.run(tasks, **given)


def test_every_public_name_is_there_and_importing_is_light() -> None:
    assert all(getattr(deskroll, name) is not None for name in deskroll.__all__)
    assert set(deskroll.__all__) <= set(dir(deskroll))
    with pytest.raises(AttributeError, match="has no attribute 'Runtimes'"):
        _ = deskroll.Runtimes  # type: ignore[attr-defined]
    code = "import deskroll, sys; print([name for name in sys.modules if name.split('.')[0] in sys.argv[1:]])"
    heavy = ["aiohttp", "pydantic", "msgspec", "rich", "click", "numpy"]
    told = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


INTERRUPTED = """
import asyncio, os, signal, click
from deskroll.conduct.loops import run_for_command
from deskroll.conduct.program import run_command
async def work():
    os.kill(os.getpid(), signal.SIGINT)  # nobody in there handles it
    await asyncio.sleep(3600)
run_command(click.Command("it", callback=lambda: run_for_command(work())))
"""


def test_a_command_that_is_interrupted_says_so_whoever_takes_the_signal() -> None:
    told = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout, told.stderr) == (130, "", "interrupted\n")


def test_commands_that_run_episodes_do_so_in_one_way() -> None:
    commands = ROOT / "src/deskroll/cli"
    for name in ("run", "demo", "replay"):
        source = (commands / f"{name}.py").read_text()
        assert "run_for_command(" in source
        assert not re.search(r"uvloop|asyncio\.run|CancelledError", source), name


def test_a_run_returns_its_episodes(place: Path) -> None:
    episodes = run(num_rollouts=2, group_size=2)
    assert [(each.key.task, each.key.sample, each.score.value) for each in episodes] == [
        (f"t{n}", sample, 1.0) for n in range(3) for sample in range(2)
    ]
    kept = deskroll.open_run(episodes.folder)
    assert [each.key for each in kept.outcomes()] == [each.key for each in episodes]


def test_tasks_may_be_a_file_or_tasks(place: Path) -> None:
    (place / "tasks.jsonl").write_text('{"id": "a", "question": "6*7?", "answer": "42"}\n')
    assert [each.key.task for each in run("tasks.jsonl", run_id="file")] == ["a"]
    tasks = deskroll.load_tasks("tasks.jsonl")
    assert [each.key.task for each in run(tasks, run_id="tasks")] == ["a"]


def test_a_run_goes_on(place: Path) -> None:
    first = run(limits={"run_time": 1e-9}, run_id="short")
    assert first == []
    with pytest.raises(deskroll.InputError, match=r"task 't0' is gone[\s\S]*force=True"):
        run([*TASKS[1:], {**TASKS[0], "id": "other"}], resume=first.folder)
    again = run(resume=first.folder, limits={"run_time": 600.0})
    assert (len(again), again.folder) == (3, first.folder)


@pytest.mark.parametrize(
    ("given", "settings", "said"),
    [
        ([], {}, "no tasks are given"),
        (None, {}, "tasks is a NoneType; give a path, or a list of tasks"),
        (TASKS, {"num_vms": 0}, "num_vms"),
        (TASKS, {"num_vm": 1}, "num_vm"),
        (TASKS, {"limit": 1}, "limit and only are for files"),
        ([{"id": "a"}], {}, "task 0: task 'a'"),
        (TASKS[0], {}, "for a single one write [task]"),
        ([*TASKS, "t3"], {}, "task 3: a task is an object"),
        ([*TASKS, TASKS[1]], {}, "task 't1' is given twice"),
        ("nowhere.jsonl", {}, "nowhere.jsonl"),
        (TASKS, {"model": "scripted:no.yaml"}, "there is no such file (/"),
        (TASKS, {"model": "scripted:."}, "is not a file; write scripted:FILE"),
        (TASKS, {"model": "scripted"}, "there is no script beside the tasks"),
        (TASKS, {"agent": "chatt"}, "did you mean chat"),
    ],
)
def test_what_is_wrong_is_one_error(place: Path, given: Any, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(deskroll.InputError, match=re.escape(said)):
        run(given, **settings)


async def test_runs_and_runtimes_do_not_share_a_folder(place: Path) -> None:
    resources = deskroll.Resources(backend="inline")
    spec = {"env": "math", "model": {"name": "scripted:answers.yaml"}}
    first = run(run_id="one")
    with pytest.raises(deskroll.InputError, match=r"one is a run of deskroll.run, .*: give the runtime a store of its"):
        async with deskroll.Runtime.open(resources, store=first.folder):
            pass
    async with deskroll.Runtime.open(resources, store="results/two") as runtime:
        await runtime.run(deskroll.Job("train", TASKS, spec)).outcomes()
    with pytest.raises(deskroll.InputError, match=r"results/two is the store of a runtime, .* or start a new run"):
        run(resume="results/two")


async def test_a_run_returns_its_own_episodes_also_where_a_job_was_mixed_into_it(place: Path) -> None:
    spec = {"env": "math", "model": {"name": "scripted:answers.yaml"}}
    first = run(run_id="one")
    async with (
        RunStore.resume(first.folder) as store,
        deskroll.Runtime.open(deskroll.Resources(backend="inline"), store=store) as runtime,
    ):
        await runtime.run(deskroll.Job("train", TASKS, spec)).outcomes()
    again = run(resume=first.folder)
    assert [each.key.phase for each in again] == ["eval"] * 3


async def test_a_model_may_be_its_name_wherever_one_is_set(place: Path) -> None:
    named = "scripted:answers.yaml"
    assert deskroll.EpisodeSpec(model=named, judge=named).model.name == named  # type: ignore[arg-type]
    async with deskroll.Runtime.open(deskroll.Resources(backend="inline"), store="run") as runtime:
        job = deskroll.Job("train", TASKS, {"env": "math", "model": named})
        assert [each.score.value for each in await runtime.run(job).outcomes()] == [1.0] * 3
    (place / "run.yaml").write_text(f"model: {named}\n")
    assert load(RunConfig, place / "run.yaml").model.name == named
    laid_over = load(RunConfig, place / "run.yaml", ["model.temperature=0.5", "judge=one", "judge.seed=1"])
    assert (laid_over.model.name, laid_over.model.temperature) == (named, 0.5)
    assert laid_over.judge is not None
    assert (laid_over.judge.name, laid_over.judge.seed) == ("one", 1)


def test_a_job_without_tasks_or_with_one_twice_is_refused_when_it_is_made() -> None:
    with pytest.raises(deskroll.InputError, match="no tasks are given"):
        deskroll.Job("a", [], {"env": "math"})
    with pytest.raises(deskroll.InputError, match="task 't0' is given twice; ids must be unique"):
        deskroll.Job("a", TASKS + TASKS, {"env": "math"})


async def test_a_runtime_that_is_not_entered_says_how(place: Path) -> None:
    with pytest.raises(AttributeError, match=r"has no 'run' yet: use it with  async with Runtime\.open\("):
        deskroll.Runtime.open(store="run").run  # type: ignore[attr-defined]  # noqa: B018
    assert not (place / "run").exists()


def test_a_name_whose_folder_holds_other_files_is_refused(place: Path) -> None:
    (place / "results" / "notes").mkdir(parents=True)
    (place / "results" / "notes" / "a.txt").write_text("mine")
    with pytest.raises(deskroll.InputError, match=r"results/notes holds no run, and is not empty \(a.txt\)"):
        run(run_id="notes")


def test_a_program_that_names_itself_and_has_no_guard_is_refused(place: Path) -> None:
    agent = "from deskroll.agents.noop import NoopAgent\nimport deskroll\n"
    call = f"deskroll.run({TASKS!r}, env='math', agent=__file__ + ':NoopAgent', model='scripted:answers.yaml')\n"
    (place / "loop.py").write_text(agent + call)
    ended = subprocess.run([sys.executable, "loop.py"], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert "deskroll.run was called while agent" in ended.stderr
    assert 'put what that file does when it is run as a program below  if __name__ == "__main__":' in ended.stderr
    assert not (place / "results").exists()
    (place / "loop.py").write_text(agent + f"if __name__ == '__main__':\n    {call}")
    subprocess.run([sys.executable, "loop.py"], capture_output=True, timeout=120, check=True)


def test_episodes_are_shown_a_line_each(place: Path) -> None:
    episodes = run([*TASKS[:1], {"id": "open", "question": "Why?"}])
    assert repr(episodes).splitlines() == [
        "t0/0  1.00  exact_match with the reference answer: the same text",
        f"open/0  unscored  {episodes[1].score.reason}",
        f"2 episodes, kept in {episodes.folder}",
    ]


async def test_in_a_loop_that_runs_as_in_a_notebook(place: Path) -> None:
    assert len(run()) == 3


def test_in_a_thread(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found: list[deskroll.Episodes] = []
    thread = threading.Thread(target=lambda: found.append(run(progress=True)))
    thread.start()
    thread.join()
    assert [len(each) for each in found] == [3]
    assert "3/3 done" in capfd.readouterr().err


ASIDE = """
import pathlib, threading, time
import deskroll

def go():
    if {late}:
        threading.main_thread().join()
    tasks = [{{"id": f"t{{n}}", "question": "6*7?", "answer": "42"}} for n in range(4)]
    options = {{"backend": "inline", "num_rollouts": 1, "run_id": "one", "progress": False}}
    print(len(deskroll.run(tasks, env="math", model="scripted:answers.yaml", **options)), "are done")

threading.Thread(target=go).start()
while not {late} and not pathlib.Path("results/one/run.json").exists():
    time.sleep(0.01)
"""


def aside(*, late: bool = False) -> subprocess.Popen[str]:
    """A program that runs something in a thread, and whose main thread ends: under it, or before it has begun."""
    command = [sys.executable, "-c", ASIDE.format(late=late)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def interrupted(program: subprocess.Popen[str]) -> tuple[str, str]:
    """What a program has said, once Ctrl-C after Ctrl-C has ended it."""
    for _ in range(20):  # the first may come while a main thread that has ended still looks
        program.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return program.communicate(timeout=6)
    program.kill()
    return program.communicate()


def test_a_run_in_a_thread_outlasts_the_main_one(place: Path) -> None:
    (place / "answers.yaml").write_text(f"latency: 0.3\n{ANSWERS}")
    with aside() as program:
        out, err = program.communicate(timeout=120)
    assert (program.returncode, out, err) == (0, "4 are done\n", "")


def test_ctrl_c_ends_a_run_that_outlasts_the_main_thread(place: Path) -> None:
    (place / "answers.yaml").write_text(f"latency: 3600\n{ANSWERS}")
    with aside() as program:
        wait_until(lambda: list(place.glob("results/one/episodes/eval/0/t0/0/1")), "an attempt is under way")
        out, err = interrupted(program)
    assert "are done" not in out
    assert "KeyboardInterrupt" in err


@pytest.mark.parametrize("notebook", [False, True])
def test_ctrl_c_is_raised_with_the_way_to_go_on(place: Path, notebook: bool) -> None:
    (place / "answers.yaml").write_text(f"latency: 3600\n{ANSWERS}")
    call = f"deskroll.run({TASKS!r}, env='math', model='scripted:answers.yaml', run_id='one', progress=False)"
    whole = f"import asyncio, deskroll\nasync def main():\n    {call}\n" + ("asyncio.run(main())" if notebook else call)
    with subprocess.Popen([sys.executable, "-c", whole], stderr=subprocess.PIPE, text=True) as program:
        wait_until(lambda: list(place.glob("results/one/episodes/eval/0/t0/0/1")), "an attempt is under way")
        _, err = interrupted(program)
    folder = str(place / "results" / "one")
    assert f"KeyboardInterrupt: go on with:  deskroll.run(..., resume={folder!r})" in err


def test_a_run_that_begins_after_the_main_thread_has_ended_is_refused(place: Path) -> None:
    with aside(late=True) as program:
        _, err = program.communicate(timeout=120)
    assert err.strip().endswith("have it join this one")
    assert not (place / "results").exists()


def test_the_pages_examples_run(place: Path) -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    (answers,) = re.findall(r"```yaml\n(# answers\.yaml.*?)```", page, re.DOTALL)
    (place / "answers.yaml").write_text(answers)
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 3
    told = ""
    for block in blocks:
        ran = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, timeout=120, check=False)
        assert ran.returncode == 0, ran.stderr
        told += ran.stdout
    assert "product 1.0 " in told
    assert len(re.findall(r"^train 0 q\d \[", told, re.MULTILINE)) == 4
    assert len(re.findall(r"^baseline q\d \d\.\d$", told, re.MULTILINE)) == 4
    assert len(re.findall(r" steps$", told, re.MULTILINE)) == 20
