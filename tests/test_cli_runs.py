"""`deskroll runs ls` and `deskroll show`: what runs there are, and one episode step by step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deskroll.actions import Answer
from deskroll.report import terminal
from deskroll.report.episode_lines import episode_lines, shown_attempt
from deskroll.report.listing import line_of
from deskroll.report.page import facts
from deskroll.report.results import Results
from deskroll.rollout.config import Resources
from deskroll.rollout.job import Job
from deskroll.rollout.runtime import Runtime
from deskroll.rollout.spec import EpisodeSpec
from deskroll.types import EpisodeKey
from tests.commands import Commands, Ended
from tests.rollout.conftest import ANSWER, CALCULATE, Runs, questions, runs, script

__all__ = ["runs"]
Shell = Callable[..., Ended]


@pytest.fixture
async def made(runs: Runs) -> Path:
    """Three runs: one that is finished, one whose agent's code fails, one whose folder is damaged."""
    results = Path(runs.folder, "results")
    here = Runs(results)
    price = {"price": {"input": 1000, "output": 1000}}
    await here.run(script(CALCULATE, ANSWER), questions(2), run_id="good", group_size=2, model=price)
    await here.run(script(ANSWER), questions(1), run_id="bad", agent="tests.rollout.parts:BrokenAgent")
    (results / "torn").mkdir()
    (results / "torn" / "run.json").write_text("{")
    return results


@pytest.fixture
def shell(deskroll: Commands, env: dict[str, str], made: Path) -> Shell:
    """Commands in the folder above the runs."""

    def call(*args: str, code: int = 0, columns: int = 100) -> Ended:
        ended = deskroll(*args, cwd=made.parent, env={**env, "COLUMNS": str(columns)})
        assert ended.code == code, ended.err
        assert "Traceback" not in ended.err
        return ended

    return call


def test_all_runs_of_a_folder(shell: Shell, made: Path) -> None:
    said = shell("runs", "ls", code=1)
    by_run = {line.split()[0]: line for line in said.out.splitlines() if line}
    assert list(by_run)[:1] == ["RUN"]
    assert "finished" in by_run["good"]
    assert "100.0% of 4" in by_run["good"]
    assert "USD" in by_run["good"]
    assert "0.0% of 1" in by_run["bad"]
    assert "unreadable" in by_run["torn"]
    assert f"! results/torn: {made}/torn/run.json cannot be read" in said.out
    found = {each["run_id"]: each for each in json.loads(shell("runs", "ls", "results", "--json", code=1).out)}
    assert (found["good"]["planned"], found["good"]["successes"], found["good"]["success"]) == (4, 4, 1.0)
    assert found["good"]["cost_usd"] > 0
    assert found["torn"]["problem"]


async def test_a_cost_that_nobody_knows_is_not_zero(runs: Runs) -> None:
    await runs.run(script(ANSWER), questions(1), run_id="unpriced")
    found = line_of(f"{runs.folder}/unpriced")
    assert (found.cost_usd, found.cost_unknown, found.model_calls) == (None, 1, 1)


async def test_a_run_of_jobs_is_listed_with_what_their_specs_name(tmp_path: Path) -> None:
    specs = [EpisodeSpec.model_validate({"env": "math", "agent": "noop", "limits": {"max_turns": n}}) for n in (3, 4)]
    other = EpisodeSpec.model_validate({"env": "py", "agent": "noop"})
    for name, those in {"one": specs[:1], "alike": specs, "two": [specs[0], other]}.items():
        async with Runtime.open(Resources(backend="inline"), store=tmp_path / name) as runtime:
            for number, spec in enumerate(those):
                assert [group async for group in runtime.run(Job(f"job-{number}", questions(1), spec))]
    found = {name: line_of(str(tmp_path / name)) for name in ("one", "alike", "two")}
    assert {name: (each.env, each.agent) for name, each in found.items()} == {
        "one": ("math", "noop"), "alike": ("math", "noop"), "two": ("2 specs", "noop"),
    }  # fmt: skip
    header = {fact.name: fact.value for fact in facts(Results.read(tmp_path / "one"))}
    assert (header["env"], header["agent"], header["max turns"]) == ("math", "noop", "3")


def test_newest_first_and_a_single_run(shell: Shell) -> None:
    names = [each["run_id"] for each in json.loads(shell("runs", "ls", "--json", code=1).out)]
    assert names[:2] == ["bad", "good"]
    assert [each["run_id"] for each in json.loads(shell("runs", "ls", "results/good", "--json").out)] == ["good"]


def test_no_runs_at_all(shell: Shell) -> None:
    assert "holds no run" in shell("runs", "ls", "nowhere", code=2).err


@pytest.mark.parametrize("name", ["task-1", "eval/0/task-1/0", "eval/0/task-1/0#1", "task-1#1"])
def test_an_episode_by_its_names(shell: Shell, name: str) -> None:
    said = shell("show", "results/good", name).out
    assert said.startswith("eval/0/task-1/0#1  success 1.00")
    assert "phase/round/task/sample#attempt" in said
    assert "let me see" in said
    assert 'TOOL_CALL name="calculator"' in said
    assert "6*7 = 42" in said
    assert "results/good/episodes/eval/0/task-1/0/1" in said.splitlines()[-1]


def test_another_sample_the_folder_and_json(shell: Shell, made: Path) -> None:
    folder = f"{made}/good/episodes/eval/0/task-0/1/1"
    found = json.loads(shell("show", "results/good", "task-0", "--sample", "1", "--json").out)
    assert found == json.loads(shell("show", folder, "--json").out)
    assert (found["folder"], found["counts"], found["attempts"]) == (folder, True, 1)
    assert [step["results"] for step in found["steps"] if "results" in step] == [["6*7 = 42"]]
    assert {"episode.json", "steps.jsonl", "conversation.json"} <= set(found["files"])
    assert all((Path(folder) / name).is_file() for name in found["files"])


def test_the_traceback_is_shown(shell: Shell) -> None:
    said = shell("show", "results/bad").out
    assert "failed 0.00" in said
    assert 'raise ZeroDivisionError("division by zero")' in said
    assert "error.txt" in said


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["results/good"], "has 2 episodes of sample 0 (task-0, task-1): say which task"),
        (["results/good", "task"], "has 2 episodes of sample 0 (task-0, task-1): say which task"),
        (["results/good", "other"], "has no episode of task 'other', sample 0; tasks: task-0, task-1"),
        (["results/good", "task-0", "--sample", "7"], "no episode of task 'task-0', sample 7; samples of it: 0"),
        (["results/good", "task-0#3"], "has no attempt 3"),
        (["nowhere", "x"], "nowhere is not a run and holds none"),
    ],
)
def test_what_is_not_there(shell: Shell, args: list[str], said: str) -> None:
    assert said in shell("show", *args, code=2).err


@pytest.mark.parametrize("width", [80, 120])
async def test_it_fits_the_terminal(runs: Runs, width: int) -> None:
    long = {"text": "\x1b[31mred " + "word " * 400 + "omega"}
    (episode,) = await runs.run(script(CALCULATE, long), questions(1))
    results = Results.read(f"{runs.folder}/run")
    shown = shown_attempt(results, EpisodeKey(phase="eval", round=0, task="task-0", sample=0), episode.attempt)
    assert isinstance(shown.steps[1].actions[0], Answer)
    console = terminal.console()
    for full in (False, True):
        lines = console.render_lines(episode_lines(shown, results, full=full), console.options.update(width=width))
        text = ["".join(part.text for part in line) for line in lines]
        assert max(map(len, text)) <= width
        assert "\x1b" not in "".join(text)
        assert ("omega" in "".join(text)) is full


def test_the_shell_completes_commands_and_options(deskroll: Commands, env: dict[str, str], tmp_path: Path) -> None:
    def completed(*typed: str) -> list[str]:
        line = {"COMP_WORDS": "\n".join(("deskroll", *typed)), "COMP_CWORD": str(len(typed))}
        said = deskroll(cwd=tmp_path, env={**env, **line, "_DESKROLL_COMPLETE": "bash_complete"})
        return [each.partition(",")[2] for each in said.out.splitlines()]

    assert completed("ru") == ["run", "runs"]
    assert "--num-vms" in completed("run", "--num")
    assert completed("runs", "") == ["ls"]


def test_names_are_explained_where_they_first_appear(shell: Shell, made: Path) -> None:
    (made.parent / "t.jsonl").write_text('{"id": "m", "question": "6*7?"}\n{"id": "n", "question": "6*7?"}\n')
    (made.parent / "s.yaml").write_text("replies: [{turns: [{text: x}]}]\n")
    command = ["run", "t.jsonl", "--env", "math", "--model", "scripted:s.yaml", "--set", "workers=1"]
    said = shell(*command, "--agent", "tests.rollout.parts:BrokenAgent", code=0).err
    assert said.count("#1 (phase/round/task/sample#attempt): ") == 1
    first = next(line for line in said.splitlines() if "#1" in line)
    assert "/0#1 (phase/round/task/sample#attempt): the agent: ZeroDivisionError" in first
