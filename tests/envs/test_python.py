"""The environment py: what the model is told, its options, its checks, and whole episodes from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from deskroll.actions import Answer, ToolCall
from deskroll.envs import Ending, env_kind, env_settings
from deskroll.envs.python import PythonEnv, PythonSettings
from deskroll.errors import ActionError, ConfigError, FailureClass, InputError, MissingDependency, SetupError
from deskroll.types import StopReason, Task, ToolRequest
from tests.commands import Commands

ROOT = Path(__file__).parent.parent.parent
TASK = Task(id="a", instruction="What is 6*7?", answer="42")


def call(*expressions: str) -> ToolCall:
    return ToolCall(name="python_interpreter", arguments={"expressions": list(expressions)}, call_id="c")


async def test_an_episode() -> None:
    env = PythonEnv(TASK, PythonSettings())
    try:
        assert (await env.reset()).instruction == "What is 6*7?"
        (tool,) = env.tools
        assert tool.name == "python_interpreter"
        assert tool.parameters["required"] == ["expressions"]
        first = await env.step([call("x = 6"), call("exit()"), call("x = 6", "x * 7")])
        one, two, three = first.observation.results
        assert one == "(no output)"
        assert "started anew" in two
        assert three.endswith("--- 2 of 2 ---\n42")
        last = await env.step([call("x + 1"), Answer(text="42")])
        assert (last.observation.results, last.stop, last.answer) == (("7",), StopReason.ANSWER, "42")
        assert (await env.score(Ending(stop=StopReason.ANSWER, answer="42"))).value == 1.0
    finally:
        await env.close()


async def test_an_episode_that_never_calls_it_closes_too() -> None:
    await PythonEnv(TASK, PythonSettings()).close()


async def test_results_are_printable_and_bounded() -> None:
    env = PythonEnv(TASK, PythonSettings(output_chars=1000))
    try:
        moment = await env.step([call("print('\\x1b[2J')", *["print('y' * 10**6)"] * 19)])
    finally:
        await env.close()
    (result,) = moment.observation.results
    assert "\x1b" not in result
    assert result.count("bytes left out") == 19
    assert len(result) < 3000


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [("{}", "expressions"), ('{"expressions": []}', "length"), ('{"expressions": "1"}', "array"),
     ('{"expressions": [1]}', "str"), ('{"expressions": ["1"', "fit"),
     (json.dumps({"expressions": ["1"] * 21}), "length"), (json.dumps({"expressions": ["1" * 100_001]}), "length")],
)  # fmt: skip
def test_calls_are_checked(arguments: str, wrong: str) -> None:
    with pytest.raises(ActionError, match=rf"python_interpreter: the arguments do not fit: .*{wrong}|{wrong}"):
        PythonEnv(TASK, PythonSettings()).decode(ToolRequest(id="c", name="python_interpreter", arguments=arguments))


def test_options() -> None:
    kind = env_kind("py")
    assert kind is PythonEnv
    assert env_settings(kind, {"timeout": 5, "memory_mb": 512}, "py") == PythonSettings(timeout=5.0, memory_mb=512)
    for option, value in (("timeout", 0), ("memory_mb", 1), ("output_chars", 10**6), ("no_such", 1)):
        with pytest.raises(ConfigError, match=rf"env_options \(env py\).*{option}"):
            env_settings(kind, {option: value}, "py")


def test_a_machine_that_can_is_found_fit() -> None:
    PythonEnv.prepare([TASK], PythonSettings(), Path())


def test_without_bubblewrap_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependency, match="needs bubblewrap: apt-get install"):
        PythonEnv.prepare([TASK], PythonSettings(), Path())


def test_without_numpy_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['numpy'] = None\nfrom pathlib import Path\n"
        "from deskroll.envs.python import PythonEnv, PythonSettings\nPythonEnv.prepare([], PythonSettings(), Path())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.endswith("MissingDependency: the environment py needs numpy: pip install 'deskroll[py]'\n")


@pytest.fixture
def no_namespaces(monkeypatch: pytest.MonkeyPatch, runtime_folder: Path) -> None:
    """A machine whose bubblewrap is not allowed to make namespaces."""
    folder = runtime_folder / "no-namespaces"
    folder.mkdir(exist_ok=True)
    program = folder / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    for path in (folder, program):
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_without_namespaces_it_says_so(no_namespaces: None) -> None:
    with pytest.raises(
        InputError, match=r"py cannot run here: .*No permissions to create new namespace; allow user name"
    ):
        PythonEnv.prepare([TASK], PythonSettings(), Path())


async def test_a_sandbox_that_does_not_start_is_no_fault_of_the_agent(no_namespaces: None) -> None:
    env = PythonEnv(TASK, PythonSettings())
    try:
        with pytest.raises(SetupError, match=r"does not start: .*No permissions") as caught:
            await env.step([call("1")])
        assert caught.value.failure is FailureClass.SETUP
    finally:
        await env.close()


def test_the_examples_are_solved_by_what_the_tool_says(deskroll: Commands, env: dict[str, str], tmp_path: Path) -> None:
    tasks = ROOT / "data" / "py_examples.jsonl"
    script = tasks.with_suffix(".script.yaml")
    args = ["run", str(tasks), "--env", "py", "--model", f"scripted:{script}", "--output-dir", str(tmp_path / "out")]
    done = deskroll(*args, cwd=tmp_path, env=env)
    assert done.code == 0, done.err
    (run,) = (tmp_path / "out").iterdir()
    results = [json.loads(line) for line in (run / "results.jsonl").read_text().splitlines()]
    answers = {each["id"]: each["answer"] for each in map(json.loads, tasks.read_text().splitlines())}
    assert {each["task_id"]: each["score"] for each in results} == dict.fromkeys(answers, 1.0)
    assert len(answers) >= 6
    for task, answer in answers.items():
        (steps,) = run.glob(f"episodes/*/*/{task}/*/*/steps.jsonl")
        said = [result for line in steps.read_text().splitlines() for result in json.loads(line).get("results", [])]
        assert any(answer in result for result in said), (task, said)
