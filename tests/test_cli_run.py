"""`deskroll run` and `deskroll status` as a person uses them: what is printed, what is left behind, how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from deskroll.models.scripted import Faults, Reply, Script, ScriptedServer, ToolUse, Turn
from deskroll.models.scripted.script import FaultKind, When
from tests.commands import Commands, Ended, clean_environment
from tests.waiting import wait_until

MATH = ["run", "t.jsonl", "--env", "math", "--model", "scripted:s.yaml"]
QUICK = [*MATH, "--set", "backend=inline"]
"""Where it does not matter in which process episodes run."""
STOPPING = r"stopping: (\d+) episodes? under way will finish, (\d+) left for a resume; Ctrl-C again stops now"
TURNS = 'turns: [{text: see, tools: [{name: calculator, arguments: {expressions: ["6*7"]}}]}, {text: "42"}]'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with four tasks, and a script that solves them with a calculator."""
    made = tmp_path / "work"
    made.mkdir()
    write_tasks(made, 4)
    write_script(made)
    return made


def write_tasks(place: Path, count: int) -> None:
    lines = [{"id": f"m{n}", "question": f"task {n}: 6*7?", "answer": "42", "domain": "sums"} for n in range(count)]
    (place / "t.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def write_script(place: Path, *, latency: float = 0.0) -> None:
    (place / "s.yaml").write_text(f"latency: {latency}\nreplies: [{{{TURNS}}}]\n")


def records(run: Path, kind: str) -> list[dict]:
    path = run / "journal.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.startswith(f'{{"type":"{kind}"') and line.endswith("\n")]


def results(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]


class Running:
    """A run in a process of its own, in a session of its own."""

    def __init__(self, process: subprocess.Popen[str], run: Path, log: Path) -> None:
        self.process = process
        self.run = run
        self._log = log

    def said(self) -> str:
        return self._log.read_text()

    def started(self) -> int:
        return len(records(self.run, "started"))

    def begun(self) -> int:
        """How many of these have come to their first message."""
        return len(list(self.run.glob("episodes/*/*/*/*/*/conversation.json")))

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@contextmanager
def running(place: Path, env: dict[str, str], args: Sequence[str]) -> Iterator[Running]:
    command = [sys.executable, "-m", "deskroll", *args, "--set", "run_id=one"]
    log = place / "stderr"
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, cwd=place, env=env, stdout=subprocess.DEVNULL, stderr=errors, text=True, start_new_session=True
        )
    try:
        with process:
            yield Running(process, place / "results/one", log)
            process.wait(60)
    finally:
        process.kill()


def assert_nothing_is_left(family: Sequence[psutil.Process], env: dict[str, str]) -> None:
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []
    left = [path for path in Path(env["DESKROLL_RUNTIME_DIR"]).rglob("*") if not path.is_dir()]
    assert [path for path in left if path.suffix in (".sock", ".json")] == []


def assert_each_episode_ended_once(run: Path, tasks: int = 4) -> None:
    sealed = Counter(record["episode"]["key"]["task"] for record in records(run, "sealed"))
    assert sealed == {f"m{n}": 1 for n in range(tasks)}
    assert sorted(line["task_id"] for line in results(run)) == sorted(sealed)
    assert all(line["success"] for line in results(run))


# --- to the end ------------------------------------------------------------------------------------------


def test_a_run_to_its_end(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    ended = deskroll(*MATH, "--set", "run_id=one", cwd=place, env=env)
    assert ended.code == 0, ended.err
    assert "one  finished: 4 of 4 episodes" in ended.out
    assert "4/4 done | success 100.0% of 4 scored" in ended.err
    run = place / "results/one"
    assert_each_episode_ended_once(run)
    assert json.loads((run / "summary.json").read_text())["finished"] is True
    info = json.loads((run / "run.json").read_text())
    assert info["config"]["env"] == "math"
    assert info["command"][:2] == ["deskroll", "run"]
    for line in results(run):
        assert line["question"] == f"task {line['task_id'][1:]}: 6*7?"
        folder = run / line["folder"]
        assert folder == run / f"episodes/eval/0/{line['task_id']}/0/1"
        assert {"episode.json", "steps.jsonl", "conversation.json"} <= {path.name for path in folder.iterdir()}
    assert_nothing_is_left([], env)


def test_json_is_one_object_on_standard_output(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    ended = deskroll(*QUICK, "--json", "--limit", "1", cwd=place, env=env)
    assert ended.code == 0, ended.err
    summary = json.loads(ended.out)
    overall = summary["overall"]
    assert (summary["finished"], overall["attempted"], overall["successes"]) == (True, 1, 1)
    assert "more:  deskroll report" in ended.err


def test_group_size_and_limit(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    ended = deskroll(*QUICK, "--group-size", "2", "--limit", "2", "--set", "run_id=one", cwd=place, env=env)
    assert ended.code == 0, ended.err
    found = sorted((line["task_id"], line["sample"]) for line in results(place / "results/one"))
    assert found == [("m0", 0), ("m0", 1), ("m1", 0), ("m1", 1)]


def test_episodes_that_have_no_score_are_told_by_the_exit_code(
    deskroll: Commands, place: Path, env: dict[str, str]
) -> None:
    # A conversation that no reply fits is refused by the server: its fault, so it is not scored.
    (place / "s.yaml").write_text(f"replies: [{{when: {{regex: 'task [01]'}}, {TURNS}}}]\n")
    command = [*QUICK, "--set", "retries.model=0", "--set", "run_id=one"]
    ended = deskroll(*command, cwd=place, env=env)
    assert ended.code == 1, ended.err
    found = {line["task_id"]: (line["success"], line["failure_class"]) for line in results(place / "results/one")}
    good, bad = (True, None), (None, "model")
    assert found == {"m0": good, "m1": good, "m2": bad, "m3": bad}
    assert "2 of 4 attempted episodes have no score" in ended.out
    write_script(place)
    again = deskroll("run", "--resume", "results/one", cwd=place, env=env)
    assert again.code == 0, again.err
    assert {line["task_id"]: line["attempt"] for line in results(place / "results/one")} == {
        "m0": 1, "m1": 1, "m2": 2, "m3": 2,
    }  # fmt: skip


def test_a_group_that_its_policy_closes_early_is_no_failure_of_the_run(
    deskroll: Commands, place: Path, env: dict[str, str]
) -> None:
    command = [*QUICK, "--group-size", "4", "--num-rollouts", "1", "--limit", "1", "--set", "policy.no_signal_after=2"]
    ended = deskroll(*command, "--set", "run_id=one", cwd=place, env=env)
    assert ended.code == 0, ended.err
    assert "2 episodes were given up by the group's policy" in ended.out
    assert "go on with" not in ended.err
    assert [line["success"] for line in results(place / "results/one")] == [True, True, None, None]
    refused = deskroll(*QUICK, "--set", "policy=min_viable", cwd=place, env=env)
    assert refused.code == 2
    assert "policy.min_scored is 2, and a group has 1 (group_size is 1)" in refused.err


def test_desktops_of_the_simulation(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    done = 'tools: [{name: computer, arguments: {action_type: "DONE"}}]'
    click = 'tools: [{name: computer, arguments: {action_type: "CLICK", parameters: {x: 3, y: 4}}}]'
    (place / "s.yaml").write_text(f"replies: [{{turns: [{{{click}}}, {{{done}}}]}}]\n")
    task = {"instruction": "click", "evaluator": {"func": "infeasible"}}
    (place / "t.jsonl").write_text("".join(json.dumps({"id": f"m{n}", **task}) + "\n" for n in range(4)))
    command = [*MATH, "--env", "osworld", "--provider", "sim", "--num-vms", "2", "--set", "run_id=one"]
    ended = deskroll(*command, cwd=place, env=env)
    assert ended.code == 0, ended.err
    run = place / "results/one"
    assert {line["stop"] for line in results(run)} == {"done"}
    assert {line["score"] for line in results(run)} == {0.0}
    assert len(list(run.glob("episodes/eval/0/*/0/1/screens/*.png"))) >= 4
    states = Counter(record["state"] for record in records(run, "desktop"))
    assert states["leased"] == 4
    assert_nothing_is_left([], env)


def test_the_simulation_scores_nothing_that_only_a_program_could_have_done(
    deskroll: Commands, place: Path, env: dict[str, str]
) -> None:
    turns = 'turns: [{tools: [{name: computer, arguments: {action_type: "ACTION"}}]}]'
    replies = [f"{{when: '{what}', {turns.replace('ACTION', what)}}}" for what in ("DONE", "FAIL")]
    (place / "s.yaml").write_text(f"replies: [{', '.join(replies)}]\n")
    rules = {"type": "rule", "rules": {"expected": "x"}}
    look = {"func": "exact_match", "expected": rules,
            "result": {"type": "vm_command_line", "command": "ls", "shell": True}}  # fmt: skip
    tasks = [
        {"id": "looks", "instruction": "DONE", "evaluator": look},
        {"id": "gave-up", "instruction": "FAIL", "evaluator": look},
        {"id": "cannot", "instruction": "FAIL", "evaluator": {"func": "infeasible"}},
    ]
    (place / "t.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    command = [*MATH, "--env", "osworld", "--provider", "sim", "--num-vms", "1", "--set", "run_id=one"]
    ended = deskroll(*command, "--set", "env_options.evaluators=native", cwd=place, env=env)
    assert ended.code == 1, ended.err
    found = {line["task_id"]: (line["score"], line["reason"]) for line in results(place / "results/one")}
    assert found["cannot"][0] == 1.0
    for name in ("looks", "gave-up"):
        assert found[name][0] is None
        assert "a simulated one (provider sim), on which no program runs" in found[name][1]


def test_a_run_whose_terminal_vanishes_goes_on(place: Path, env: dict[str, str]) -> None:
    """Where SIGHUP is ignored, as after `nohup` or `trap '' HUP`; every write to the terminal is an error by then."""
    write_script(place, latency=0.5)
    ours, theirs = pty.openpty()
    ignoring = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"]
    command = [*ignoring, sys.executable, "-m", "deskroll", *MATH, "--num-rollouts", "1", "--set", "run_id=one"]
    process = subprocess.Popen(
        command, cwd=place, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    try:
        os.close(theirs)
        run = place / "results/one"
        wait_until(lambda: len(records(run, "started")) > 1, "the run is under way")
        os.close(ours)
        assert process.wait(90) == 0
    finally:
        process.kill()
        process.wait()
    assert_each_episode_ended_once(run)
    (closed,) = records(run, "closed")
    assert closed["why"] == "finished"
    assert_nothing_is_left([], env)


KEYS = ["model.api_key=sk-never-kept", 'model={name: "scripted:s.yaml", api_key: sk-never-kept}']


@pytest.mark.parametrize("key", KEYS, ids=["field", "mapping"])
def test_a_key_on_the_command_line_is_refused(key: str, deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    ended = deskroll(*QUICK, "--set", key, cwd=place, env=env)
    assert ended.code == 2
    assert "other users see command lines" in ended.err
    assert "OPENAI_API_KEY" in ended.err
    assert "never-kept" not in ended.out + ended.err


def test_a_key_is_kept_nowhere(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    (place / "key.yaml").write_text("model: {api_key: sk-never-kept}\nrun_id: one\n")
    ended = deskroll(*QUICK, "--config", "key.yaml", cwd=place, env={**env, "OPENAI_API_KEY": "sk-never-kept-either"})
    assert ended.code == 0, ended.err
    assert "never-kept" not in ended.out + ended.err
    kept = [path.read_bytes() for path in (place / "results").rglob("*") if path.is_file()]
    assert b"never-kept" not in b"".join(kept)


# --- before it starts ------------------------------------------------------------------------------------


def test_dry_run(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    ended = deskroll(*MATH, "--group-size", "3", "--dry-run", cwd=place, env=env)
    assert (ended.code, ended.err) == (0, "")
    assert re.search(r"episodes +12 \(3 of each task\)", ended.out)
    assert "nothing was run (--dry-run)" in ended.out
    plan = json.loads(deskroll(*MATH, "--group-size", "3", "--dry-run", "--json", cwd=place, env=env).out)
    assert (plan["tasks"], plan["episodes"], plan["left_to_do"], plan["num_vms"]) == (4, 12, 12, 0)
    assert not (place / "results").exists()


def test_dry_run_with_desktops_and_of_a_run_that_is_to_go_on(
    deskroll: Commands, place: Path, env: dict[str, str]
) -> None:
    sized = [*MATH, "--env", "osworld", "--provider", "sim", "--num-vms", "2", "--num-rollouts", "50", "--dry-run"]
    ended = deskroll(*sized, cwd=place, env=env)
    assert ended.code == 0, ended.err
    assert "2 of provider sim" in ended.out
    assert "25.0 rollouts a desktop: more than 10 gains nothing" in ended.out
    assert deskroll(*QUICK, "--set", "run_id=one", cwd=place, env=env).code == 0
    again = deskroll("run", "--resume", "results/one", "--dry-run", cwd=place, env=env)
    assert again.code == 0, again.err
    assert "4, of which 0 are left to do" in again.out
    assert "as in run one" in again.out, "the time of an episode is that of the run so far"
    assert re.search(r"time +about 0 s,", again.out), "nothing is left to do"
    other = deskroll(*sized, cwd=place, env=env)
    assert "assumed, for the last run has another environment, agent or model" in " ".join(other.out.split())


def test_dry_run_of_a_run_that_the_machine_spoiled(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    no_judge = ["--set", "env_options.evaluation_metric=llm_judgement", "--set", "retries.evaluator=0"]
    assert deskroll(*QUICK, *no_judge, "--set", "run_id=one", cwd=place, env=env).code == 1
    again = ["run", "--resume", "results/one", "--dry-run"]
    assert "4, of which 4 are left to do" in deskroll(*again, cwd=place, env=env).out
    plan = json.loads(deskroll(*again, "--json", cwd=place, env=env).out)
    assert (plan["episodes"], plan["left_to_do"]) == (4, 4)
    assert plan["task_seconds_from"] == "assumed, for no episode of this run has come to its end"


FILES = {
    "c.yaml": "tasks: t.jsonl\nenv: math\nnum_rollouts: 3\ngroup_size: 2\n"
    "model: {name: from-file}\nlimits: {max_turns: 9}\n",
    "c.toml": 'tasks = "t.jsonl"\nenv = "math"\nnum_rollouts = 3\ngroup_size = 2\n'
    'model.name = "from-file"\n[limits]\nmax_turns = 9\n',
}


@pytest.mark.parametrize("name", FILES)
def test_flags_go_over_the_file_and_set_over_flags(
    name: str, deskroll: Commands, place: Path, env: dict[str, str]
) -> None:
    (place / name).write_text(FILES[name])
    more = ["--model", "scripted:s.yaml", "--num-rollouts", "7", "--set", "num_rollouts=8"]
    more += ["--set", "run_id=one", "--set", "backend=inline"]
    ended = deskroll("run", "--config", name, *more, cwd=place, env=env)
    assert ended.code == 0, ended.err
    resolved = json.loads((place / "results/one/run.json").read_text())["config"]
    assert (resolved["num_rollouts"], resolved["group_size"], resolved["limits"]["max_turns"]) == (8, 2, 9)
    assert resolved["model"]["name"] == f"scripted:{place / 's.yaml'}"
    assert len(results(place / "results/one")) == 8


@pytest.mark.parametrize("command", ["run", "status"])
def test_help_has_an_example_and_imports_nothing_heavy(command: str) -> None:
    settings = {"pydantic", "msgspec", "yaml"} if command == "run" else set()  # its flags are made from them
    heavy = {"aiohttp", "numpy", "pydantic", "rich", "msgspec", "yaml", "fsspec", "jinja2"} - settings
    code = (
        "import sys\nfrom deskroll.cli.main import cli\n"
        f"cli.main(['{command}', '--help'], standalone_mode=False)\nprint('heavy:', sorted({heavy} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"Examples: deskroll {command}" in " ".join(found.stdout.split())
    assert found.stdout.splitlines()[-1] == "heavy: []"


# --- what is seen ----------------------------------------------------------------------------------------


def test_without_a_terminal_there_are_plain_lines(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    odd = place / ("a [bold]long[/bold] name, " + "x" * 80)
    ended = deskroll(*QUICK, "--output-dir", str(odd), "--set", "run_id=one", cwd=place, env={**env, "COLUMNS": "40"})
    assert ended.code == 0, ended.err
    assert "\x1b" not in ended.err + ended.out
    assert f"run one in {odd}/one\n" in ended.err
    assert f"more:  deskroll report '{odd}/one' --html report.html\n" in ended.err
    assert "4/4 done | success 100.0% of 4 scored (95%: 51% to 100%) | 0 in flight | limit: " in ended.err


def test_on_a_terminal_the_progress_is_live(place: Path, env: dict[str, str]) -> None:
    write_script(place, latency=0.4)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "deskroll", *MATH, "--num-rollouts", "2"]
    screen = {**env, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
    with subprocess.Popen(command, cwd=place, env=screen, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        shown = b"".join(iter(lambda: read_terminal(ours), b"")).decode()
        assert process.wait(60) == 0
    os.close(ours)
    assert "\x1b[" in shown
    assert "2 of 2 in flight" in shown
    assert "4/4" in shown


def read_terminal(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:  # the other side is closed
        return b""


# --- advice ---------------------------------------------------------------------------------------------


async def test_a_model_that_the_server_does_not_list_is_told_before_the_start(
    deskroll: Commands, place: Path, env: dict[str, str]
) -> None:
    """It is asked all the same: not every server lists every name."""

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "my-model"}, {"id": "another"}]})

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"choices": [{"message": {"content": "42"}, "finish_reason": "stop"}]})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    app.router.add_post("/v1/chat/completions", answer)
    async with TestServer(app) as server:
        url = str(server.make_url("/v1"))
        args = ["run", "t.jsonl", "--env", "math", "--set", "backend=inline", "--base-url", url, "--model"]
        typo = await asyncio.to_thread(deskroll, *args, "my-modle", cwd=place, env=env)
        right = await asyncio.to_thread(deskroll, *args, "my-model", cwd=place, env=env)
    assert (typo.code, right.code) == (0, 0), typo.err + right.err
    told = f"model: {url} does not list a model 'my-modle'; the nearest that it has: my-model."
    assert told in typo.err
    assert typo.err.index(told) < typo.err.index("/results/"), "before the run is there"
    assert "does not list" not in right.err


async def test_a_key_that_is_refused_names_the_command_that_goes_on(
    deskroll: Commands, place: Path, env: dict[str, str]
) -> None:
    """It was accepted when the list of models was asked for."""

    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"error": {"message": "Incorrect API key provided"}}, status=401)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", refuse)
    async with TestServer(app) as server:
        url = str(server.make_url("/v1"))
        args = ["run", "t.jsonl", "--env", "math", "--model", "m", "--base-url", url, "--set", "run_id=one"]
        ended = await asyncio.to_thread(deskroll, *args, cwd=place, env=env)
    assert ended.code == 1
    last = ended.err.strip().splitlines()[-2:]
    assert "status 401: Incorrect API key provided (no key is set" in last[0]
    assert re.fullmatch(rf"go on with:  \S+ run --resume {re.escape(str(place / 'results/one'))}", last[1])


def test_a_run_in_which_nothing_was_scored_does_not_look_done(
    deskroll: Commands, place: Path, env: dict[str, str]
) -> None:
    sim = ["--env", "osworld", "--provider", "sim", "--set", "provider_options={step_crashes: 1}"]
    once = ["--set", "retries={desktop: 0, setup: 0}", "--set", "run_id=one"]
    ended = deskroll(*QUICK, *sim, *once, cwd=place, env=env)
    assert ended.code == 1
    assert "4/4 ended, 4 unscored (4 " in ended.err
    assert "nothing more is run: a resume does the unscored again" in ended.err
    assert "go on with:" in ended.err
    assert "nothing is left to do" not in ended.err
    assert "finished: 4 of 4 episodes, none scored" in ended.out


# --- interrupted -----------------------------------------------------------------------------------------


def test_interrupted_once_what_runs_is_finished(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    write_tasks(place, 30)
    write_script(place, latency=0.5)
    with running(place, env, [*MATH, "--num-rollouts", "2"]) as live:
        wait_until(lambda: records(live.run, "sealed"), "one episode is over")
        family = live.family()
        live.signal(signal.SIGINT)
    assert live.process.returncode == 130, live.said()
    told = re.search(STOPPING, live.said())
    assert told, live.said()
    assert len(records(live.run, "sealed")) + int(told[2]) == 30, "what ran was finished, and nothing more started"
    assert records(live.run, "failed") == []
    assert "go on with:" in live.said()
    assert_nothing_is_left(family, env)
    write_script(place)
    ended = deskroll("run", "--resume", "results/one", cwd=place, env=env)
    assert ended.code == 0, ended.err
    assert_each_episode_ended_once(live.run, tasks=30)
    assert sum(line["attempt"] == 1 for line in results(live.run)) >= 28, "done again: at most what had not begun"


def test_interrupted_once_what_waits_for_a_desktop_is_given_back(
    deskroll: Commands, place: Path, env: dict[str, str]
) -> None:
    write_tasks(place, 12)
    write_script(place, latency=2.0)
    desktops = ["--env", "osworld", "--provider", "sim", "--num-vms", "2", "--num-rollouts", "12"]
    (place / "s.yaml").write_text('latency: 2.0\nreplies: [{turns: [{text: "42"}]}]\n')
    with running(place, env, [*MATH, *desktops]) as live:
        wait_until(lambda: live.started() == 12, "all are handed to workers")
        wait_until(lambda: live.begun() == 2, "two have a desktop")
        family = live.family()
        live.signal(signal.SIGINT)
    assert live.process.returncode == 130, live.said()
    told = re.search(STOPPING, live.said())
    assert told, live.said()
    assert (told[1], told[2]) == ("2", "10")
    assert (leases(live.run), len(records(live.run, "sealed")), records(live.run, "failed")) == (2, 2, [])
    assert len(list(live.run.glob("episodes/*/*/*/*/*"))) == 2, "nothing is kept of what never began"
    assert_nothing_is_left(family, env)
    write_script(place)
    ended = deskroll("run", "--resume", "results/one", cwd=place, env=env)
    assert ended.code == 0, ended.err
    assert_each_episode_ended_once(live.run, tasks=12)


def leases(run: Path) -> int:
    return sum(record["state"] == "leased" for record in records(run, "desktop"))


@pytest.mark.parametrize("signals", [[signal.SIGINT] * 2, [signal.SIGTERM]], ids=["twice", "term"])
def test_stopped_now(signals: list[signal.Signals], deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    write_script(place, latency=60)
    with running(place, env, [*MATH, "--num-rollouts", "2"]) as live:
        wait_until(lambda: live.begun() == 2, "two episodes run")
        family = live.family()
        for n, number in enumerate(signals):
            live.signal(number)
            wait_until(lambda n=n: live.said().count("stopping") > n, "the signal is taken")
        told = time.monotonic()
    assert live.process.returncode == 130, live.said()
    assert time.monotonic() - told < 25, "it stopped, and was not given up"
    assert "Traceback" not in live.said()
    assert records(live.run, "sealed") == []
    assert_nothing_is_left(family, env)
    write_script(place)
    ended = deskroll("run", "--resume", "results/one", cwd=place, env=env)
    assert ended.code == 0, ended.err
    assert_each_episode_ended_once(live.run)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_before_it_goes_on(number: signal.Signals, place: Path, env: dict[str, str]) -> None:
    # Nobody answers at the model's address, so the run is still being opened.
    with silent_listener() as port:
        model = ["--model", "m", "--base-url", f"http://127.0.0.1:{port}/v1"]
        with running(place, env, [*MATH, *model]) as live:
            wait_until(lambda: connections(live.process.pid, port), "the model is asked")
            live.signal(number)
    assert live.process.returncode == 130
    assert live.said() == "interrupted\n"
    assert_nothing_is_left([], env)


@contextmanager
def silent_listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def connections(pid: int, port: int) -> bool:
    return any(each.raddr and each.raddr.port == port for each in psutil.Process(pid).net_connections())


def test_no_local_desktop_is_left(place: Path) -> None:
    write_script(place, latency=60)
    with tempfile.TemporaryDirectory(prefix="deskroll-run-") as folder:
        Path(folder).chmod(0o711)  # where tests run as root, each desktop is a user of its own
        env = clean_environment(Path(folder))
        command = [*MATH, "--env", "osworld", "--provider", "local", "--num-vms", "1", "--num-rollouts", "1"]
        small = ["--set", "env_options={screen_width: 320, screen_height: 240, observation_type: screenshot}"]
        with running(place, env, [*command, *small]) as live:
            screens = live.run / "episodes"
            wait_until(lambda: list(screens.rglob("*.png")), "the agent has seen the desktop")
            assert len(list(Path(folder, "desktops").iterdir())) == 1
            family = live.family()
            assert len(family) > 2
            live.signal(signal.SIGTERM)
        assert live.process.returncode == 130, live.said()
        assert_nothing_is_left(family, env)
        assert list(Path(folder, "desktops").iterdir()) == []


# --- status ----------------------------------------------------------------------------------------------


def status(deskroll: Commands, place: Path, env: dict[str, str], *args: str) -> Ended:
    return deskroll("status", *args, cwd=place, env=env)


def asked(deskroll: Commands, place: Path, env: dict[str, str], *args: str) -> dict:
    ended = status(deskroll, place, env, "--json", *args)
    assert ended.code == 0, ended.err
    found: dict = json.loads(ended.out)
    return found


def test_status_of_a_live_run(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    write_script(place, latency=60)
    with running(place, env, [*MATH, "--num-rollouts", "2"]) as live:
        found = wait_until(
            lambda: (
                live.started() == 2
                and (now := asked(deskroll, place, env))["stages"] == {"model": 2}
                and now["endpoints"]
                and now
            ),
            "both episodes wait for the model",
        )
        assert (found["run_id"], found["pid"], found["in_flight"]) == ("one", live.process.pid, 2)
        assert found["standing"]["planned"] == 4
        assert found["endpoints"][0]["url"].startswith("http://127.0.0.1:")
        assert {each["key"]["task"] for each in found["activities"]} == {"m0", "m1"}
        shown = status(deskroll, place, env, "results/one")
        assert shown.code == 0, shown.err
        assert f"run one  pid {live.process.pid}  start 1" in shown.out
        assert re.search(r"eval/0/m0/0#1 +agent decides +\d+ s +0 +-", shown.out)
        assert "2 of 2 in flight: 2 decide\n" in shown.out
        more = asked(deskroll, place, env, "--num-rollouts", "3")
        assert more["num_rollouts"] == 3
        wait_until(lambda: live.started() == 3, "one more is started")
        none = status(deskroll, place, env, "--num-rollouts", "0")
        assert none.code == 2
        live.signal(signal.SIGTERM)


def test_status_stops_a_run_as_an_interrupt_does(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    write_tasks(place, 30)
    write_script(place, latency=0.5)
    with running(place, env, [*MATH, "--num-rollouts", "1"]) as live:
        wait_until(live.begun, "an episode runs")
        assert asked(deskroll, place, env, "--stop")["stopping"] is True
    assert live.process.returncode == 130, live.said()
    assert live.begun() == len(records(live.run, "sealed")) < 30
    over = status(deskroll, place, env, "results/one")
    assert over.code == 2
    assert "run results/one is not live: see  deskroll report results/one" in over.err
    nothing = status(deskroll, place, env)
    assert nothing.code == 2
    assert "no run of yours is live on this machine" in nothing.err
    programs = status(deskroll, place, env, "--json")
    assert (programs.code, "no run of yours" in json.loads(programs.out)["error"]) == (2, True)


def test_status_says_that_a_run_was_stopped_by_a_signal(deskroll: Commands, place: Path, env: dict[str, str]) -> None:
    write_script(place, latency=3600)
    with running(place, env, MATH) as live:
        wait_until(live.begun, "it has begun")
        pid = live.process.pid
        live.signal(signal.SIGSTOP)
        wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, "it stands still")
        said = f"process {pid} is stopped (state T): kill -CONT {pid} lets it go on"
        for args in ((), ("results/one",)):
            asked = status(deskroll, place, env, *args)
            assert asked.code != 0
            assert said in " ".join(asked.err.split())
        command = [sys.executable, "-m", "deskroll", "events", "results/one", "--follow"]
        with subprocess.Popen(command, cwd=place, env=env, stderr=subprocess.PIPE, text=True) as follower:
            assert follower.stderr is not None
            assert said in follower.stderr.readline()
            follower.send_signal(signal.SIGINT)
            assert follower.wait(60) == 0
        live.signal(signal.SIGCONT)
        assert status(deskroll, place, env).code == 0
        live.signal(signal.SIGTERM)
        live.signal(signal.SIGTERM)


async def test_status_names_a_wedged_desktop_and_a_silent_server(
    deskroll: Commands, place: Path, env: dict[str, str]
) -> None:
    """Whoever is answered first acts upon a desktop that hangs; the other one's answer never comes."""
    click = Turn(tools=(ToolUse(name="computer", arguments='{"action_type": "CLICK"}'),))
    script = Script(
        seed=0,  # the first request is answered, the second is not
        faults=Faults(rate=0.5, kinds=(FaultKind.STALL,), stall=3600),
        replies=(Reply(when=When(text="task"), turns=(click,)),),
    )
    # Of every desktop the first step, which looks at its beginning, is well, and the second one hangs.
    sim = ["--set", "provider_options={step_hangs: 0.5, seed: 92}"]
    async with ScriptedServer(script) as server:
        command = [*MATH, "--env", "osworld", "--provider", "sim", "--num-vms", "2", "--limit", "2", *sim]
        model = ["--model", "m", "--base-url", server.url, "--set", "watchdog.notice_after=1"]
        await asyncio.to_thread(_see_what_is_stuck, deskroll, place, env, [*command, *model], server.url)


def _see_what_is_stuck(deskroll: Commands, place: Path, env: dict[str, str], command: list[str], url: str) -> None:
    (place / "t.jsonl").write_text("".join(f'{{"id": "m{n}", "instruction": "task {n}"}}\n' for n in range(2)))
    desktop, server = (
        r"desktop (\S+) has not answered for (\d+) s",
        rf"model server {re.escape(url)} .*silent for (\d+) s",
    )

    def stuck() -> tuple[str, int, int] | None:
        lines = "\n".join(asked(deskroll, place, env, "results/one")["attention"])
        machine, model = re.search(desktop, lines), re.search(server, lines)
        return (machine[1], int(machine[2]), int(model[1])) if machine and model else None

    with running(place, env, command) as live:
        wait_until(lambda: live.started() == 2, "both episodes run")
        first = wait_until(stuck, "both are named")
        leased = {record["desktop"] for record in records(live.run, "desktop") if record["state"] == "leased"}
        assert first[0] in leased
        later = wait_until(
            lambda: (now := stuck()) and now[1] > first[1] and now[2] > first[2] and now, "the seconds go on"
        )
        assert later[0] == first[0]
        shown = status(deskroll, place, env, "results/one").out
        assert f"! desktop {first[0]} has not answered for" in shown
        assert f"! model server {url} has been silent for" in shown
        live.signal(signal.SIGTERM)
    assert live.process.returncode == 130, live.said()
