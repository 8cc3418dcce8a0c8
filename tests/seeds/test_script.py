"""The script's command line: both spellings, both documents' defaults, errors without a traceback, Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.machine import desktop_processes
from tests.rollout.conftest import until
from tests.seeds.conftest import ROOT, Checkout

SCRIPT = ROOT / "src" / "run_parallel_rollout.py"


def python(*args: str, cwd: Path, env: dict[str, str], err: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """A Python, run to its end."""
    command, out = [sys.executable, *args], subprocess.PIPE
    return subprocess.run(command, cwd=cwd, env=env, stdout=out, stderr=err, text=True, timeout=90, check=False)


def script(*args: str, cwd: Path, env: dict[str, str], err: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return python(str(SCRIPT), *args, cwd=cwd, env=env, err=err)


def config(folder: Path) -> dict[str, Any]:
    (found,) = folder.rglob("run.json")
    data: dict[str, Any] = json.loads(found.read_text())["config"]
    return data


def test_both_spellings_of_every_flag_mean_the_same(checkout: Checkout) -> None:
    flags = {
        "mode": "osworld", "data": "data/osworld_examples.jsonl", "num-rollouts": "2", "num-vms": "1",
        "use-vm-pool": None, "path-to-vm": "/vm.vmx", "provider-name": "vmware", "action-space": "computer_13",
        "screen-width": "800", "screen-height": "600", "model": "m", "max-turns": "7", "max-retries": "1",
        "headless": None, "snapshot-name": "init_state", "client-password": "word", "output-dir": "out",
    }  # fmt: skip
    other = {"mode": "env_mode", "data": "data_path", "use-vm-pool": "use_resource_pool"}
    runs = []
    for n, spelled in enumerate(({name: name for name in flags}, {each: other.get(each, each) for each in flags})):
        args = []
        for name, value in {**flags, "output-dir": f"out-{n}"}.items():
            flag = spelled[name].replace("-", "_") if n else spelled[name]
            args += [f"--{flag}", *([value] if value else [])]
        done = script(*args, cwd=checkout.folder, env={**checkout.env, "DESKROLL_PROVIDER": "sim"})
        assert "Error" not in done.stderr, done.stderr
        runs.append(config(checkout.folder / f"out-{n}"))
    for run in runs:
        run["output_dir"] = ""
    assert runs[0] == runs[1]
    assert runs[0]["limits"]["max_turns"] == 7
    assert runs[0]["env_options"]["screen_width"] == 800
    assert (runs[0]["num_rollouts"], runs[0]["num_vms"]) == (2, 1)


def test_the_defaults_are_those_of_the_second_document(checkout: Checkout) -> None:
    done = script(
        "--data", "data/critical_tasks.jsonl", cwd=checkout.folder, env={**checkout.env, "DESKROLL_PROVIDER": "sim"}
    )
    run = config(checkout.folder / "results")
    assert run["model"]["name"] == "gpt-4.1-2025-04-14"
    assert run["limits"]["max_turns"] == 100
    assert run["agent_options"]["max_retries"] == 3
    assert run["env"] == "osworld"
    # Without the pool each rollout has a desktop of its own.
    assert (run["num_rollouts"], run["num_vms"]) == (5, 5)
    assert "parallel rollout finished: 4 tasks" in done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "--data"),
        (["--data", "nowhere.jsonl"], "nowhere.jsonl: there is no such file"),
        (["--data", "data/math_examples.jsonl", "--mode", "chess"], "chess"),
        (["--data", "data/math_examples.jsonl", "--mode", "math", "--use-vm-pool"], "leave it out"),
        (["--data", "data/math_examples.jsonl", "--mode", "math", "--screen-width", "5"], "screen_width"),
        (["--data", "data/osworld_examples.jsonl", "--provider-name", "vmware"], "DESKROLL_PROVIDER=local"),
        (["--data", "data/osworld_examples.jsonl", "--num-rollouts", "0"], "num_rollouts"),
        (["--data", "data/osworld_examples.jsonl", "--no-such"], "--no-such"),
    ],
)
def test_bad_input_is_one_message(checkout: Checkout, args: list[str], said: str) -> None:
    done = script(*args, cwd=checkout.folder, env=checkout.env)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(checkout.folder.glob("results/*"))


def test_a_python_without_the_packages_is_told_what_to_do(tmp_path: Path) -> None:
    done = python("-S", "-I", str(SCRIPT), cwd=tmp_path, env={})
    assert done.returncode == 1
    assert "make setup" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("first", ["from benchmark import Benchmark", "from src.run_parallel_rollout import *"])
def test_both_modules_are_found_from_the_root(checkout: Checkout, first: str) -> None:
    source = f"{first}\nfrom src.run_parallel_rollout import ParallelRolloutConfig\nfrom benchmark import Benchmark\n"
    (checkout.folder / "script.py").write_text(source)
    done = python("script.py", cwd=checkout.folder, env=checkout.env)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("flag", ["--client-password", "--client_password"])
@pytest.mark.parametrize("form", ["{flag} hunter2", "{flag}=hunter2"])
def test_a_password_is_nowhere_in_what_a_run_leaves(checkout: Checkout, flag: str, form: str) -> None:
    args = ["--data", "data/critical_tasks.jsonl", *form.format(flag=flag).split(" ")]
    script(*args, cwd=checkout.folder, env={**checkout.env, "DESKROLL_PROVIDER": "sim"})
    files = [path for path in (checkout.folder / "results").rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [path for path in files if b"hunter2" in path.read_bytes()] == []


def test_a_password_has_to_be_given_again_to_go_on(checkout: Checkout) -> None:
    env = {**checkout.env, "DESKROLL_PROVIDER": "sim"}
    script("--data", "data/critical_tasks.jsonl", "--client-password", "hunter2", cwd=checkout.folder, env=env)
    told = python("-m", "deskroll", "run", "--resume", "results", cwd=checkout.folder, env=env)
    assert told.returncode == 2
    assert "env_options.client_password was a secret and is not kept; give it again" in told.stderr


def test_nobody_who_reads_what_it_says_is_no_reason_to_end(checkout: Checkout) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    args = ["--mode", "math", "--data", "data/math_examples.jsonl", "--json"]
    done = script(*args, cwd=checkout.folder, env=checkout.env, err=writer)
    os.close(writer)
    assert done.returncode == 0
    assert json.loads(done.stdout)["overall"]["successes"] == 10


def test_what_is_meant_for_a_pool_is_told_without_one(checkout: Checkout) -> None:
    args = ["--mode", "math", "--data", "data/math_examples.jsonl", "--num-vms", "77"]
    done = script(*args, cwd=checkout.folder, env=checkout.env)
    assert "--num-vms 77 counts only with --use-resource-pool: mode math needs no desktops" in done.stderr


PROGRAM = """
import asyncio, json, threading
from src.run_parallel_rollout import ParallelRolloutConfig, run_parallel_rollout
from benchmark import Benchmark

benchmark = Benchmark(data_path="data/math_examples.jsonl")
config = ParallelRolloutConfig(env_mode="math", agent_config_dict={"model_name": "any"})

def rollout():
    records = run_parallel_rollout(config, benchmark)
    scores = [each.score for each in benchmark.evaluate(records, metric="numeric_match")]
    return [each["evaluation_score"] for each in records] + [len(scores)]

async def notebook():
    return rollout()

def thread():
    found = []
    worker = threading.Thread(target=lambda: found.append(rollout()))
    worker.start()
    worker.join()
    return found[0]

print(json.dumps([rollout(), asyncio.run(notebook()), thread()]))
"""


def test_the_example_in_the_guide_runs(checkout: Checkout) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "running.md").read_text(), re.DOTALL)
    (checkout.folder / "script.py").write_text(program)
    done = python("script.py", cwd=checkout.folder, env=checkout.env)
    assert done.returncode == 0, done.stderr
    assert [line.rpartition(" 1.0 ")[1] for line in done.stdout.splitlines()] == [" 1.0 "] * 10


def test_it_runs_in_a_script_in_a_notebook_and_in_a_thread_with_the_keys_of_a_file(checkout: Checkout) -> None:
    (checkout.folder / "script.py").write_text(PROGRAM)
    url, key = (checkout.env.pop(name) for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"))
    (checkout.folder / ".env").write_text(f"OPENAI_BASE_URL={url}\nOPENAI_API_KEY={key}\n")
    done = python("script.py", cwd=checkout.folder, env=checkout.env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[1.0] * 10 + [10]] * 3


async def test_interrupted_it_releases_every_desktop(checkout: Checkout, runtime_folder: Path) -> None:
    def desktops() -> set[int]:
        return desktop_processes(Path(checkout.env["DESKROLL_RUNTIME_DIR"]))

    command = [sys.executable, str(SCRIPT), "--data", "data/large_dataset.jsonl", "--num-vms", "2", "--use_vm_pool"]
    log = checkout.folder / "log.txt"
    with log.open("wb") as err, subprocess.Popen(command, cwd=checkout.folder, env=checkout.env, stderr=err) as run:
        try:
            steps = "results/*/episodes/eval/0/*/0/1/steps.jsonl"
            await until(lambda: any(checkout.folder.glob(steps)), "a step is done")
            assert desktops()
            for times in (1, 2):
                os.kill(run.pid, signal.SIGINT)
                await until(
                    lambda times=times: log.read_text().count("stopping") >= times or run.poll() is not None,
                    "the signal is taken, or what was under way has ended before it",
                )
            run.wait(60)
        finally:
            run.kill()
    assert run.returncode == 130, log.read_text()
    assert "parallel rollout interrupted: 12 tasks" in log.read_text()
    assert "go on with:" in log.read_text()
    await until(lambda: not desktops(), "no desktop is left")
