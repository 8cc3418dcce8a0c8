"""Every key of env_kwargs and agent_config_dict has an effect that can be seen, or is refused with a reason."""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from benchmark import Benchmark
from deskroll.desktops.base import SettleOutcome
from deskroll.errors import InputError
from deskroll.store import Run
from deskroll.types import Stage, Step
from run_parallel_rollout import ParallelRolloutConfig, RolloutRecord, run_parallel_rollout
from tests.seeds.conftest import serve

pytestmark = pytest.mark.usefixtures("model_variables")

SUDO = "echo other-word | sudo -S -k id -u > ~/who.txt"
"""Works with the password `other-word` alone."""
TASK: dict[str, Any] = {
    "id": "who",
    "instruction": "Find out who sudo is. A terminal is open.",
    "answer": "It is zero",
    "config": [
        {
            "type": "launch",
            "parameters": {
                "command": ["lxterminal", "--no-remote", "-e", "sh -c 'echo in-the-terminal; touch ~/shown; exec cat'"]
            },
        },
        {"type": "execute", "parameters": {"command": ["bash", "-c", f"{SUDO}; true"]}},
        {"type": "execute", "parameters": {"command": ["bash", "-c", "test -e ~/shown"], "until": {"returncode": 0}}},
    ],
}
TYPE = {"tools": [{"name": "computer", "arguments": {"action_type": "TYPING", "parameters": {"text": "x"}}}]}
WRONG = {"tools": [{"name": "computer", "arguments": {"action_type": "NO_SUCH"}}]}
REPLIES = [
    {"when": "Find out who", "turns": [TYPE, {"text": "it is zero"}]},
    {"when": "Keep typing", "turns": [TYPE] * 5},
    {"when": "Be wrong once", "turns": [WRONG, {"text": "42"}]},
    {"turns": [{"text": "42"}]},
]


@dataclass
class Done:
    """One run, and what it left."""

    records: list[RolloutRecord]
    log: str
    run: Run

    @property
    def config(self) -> dict[str, Any]:
        return self.run.info.config

    @property
    def text(self) -> str:
        """Everything that was said in the first task."""
        return json.dumps(self.records[0]["messages"])

    def files(self) -> list[str]:
        episode = self.run.outcomes()[0]
        return self.run.attempt(episode.key, episode.attempt).files()

    def screen_size(self) -> tuple[int, int]:
        episode = self.run.outcomes()[0]
        data = self.run.attempt(episode.key, episode.attempt).image("screens/0.png")
        return Image.open(io.BytesIO(data)).size

    def step(self) -> Step:
        """The first one."""
        episode = self.run.outcomes()[0]
        return self.run.attempt(episode.key, episode.attempt).steps()[0]


@contextmanager
def logged() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger("deskroll").addHandler(handler)
    try:
        yield stream
    finally:
        logging.getLogger("deskroll").removeHandler(handler)


@pytest.fixture(scope="module")
def model_variables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    path = tmp_path_factory.mktemp("options") / "script.json"
    path.write_text(json.dumps({"replies": REPLIES}))
    with serve(path) as url:
        os.environ |= {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "sk-test"}
        yield
        del os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]


class Rollouts:
    """Runs one task, with options."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def __call__(self, task: dict[str, Any] = TASK, *, mode: str = "osworld", agent: Any = None, **kwargs: Any) -> Done:
        self.count += 1
        data = self.folder / f"{self.count}.jsonl"
        data.write_text(json.dumps(task))
        config = ParallelRolloutConfig(
            num_rollouts=1,
            num_vms=1,
            env_mode=mode,
            env_kwargs=kwargs,
            agent_config_dict=agent or {},
            output_dir=str(self.folder / f"out-{self.count}"),
        )
        with logged() as stream:
            records = run_parallel_rollout(config, Benchmark(data_path=data))
        runs = list((self.folder / f"out-{self.count}").glob("*/run.json"))
        return Done(records, stream.getvalue(), Run.open(runs[0].parent) if runs else None)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def rollouts(tmp_path_factory: pytest.TempPathFactory) -> Rollouts:
    return Rollouts(tmp_path_factory.mktemp("rollouts"))


@pytest.fixture(scope="module")
def usual(rollouts: Rollouts) -> Done:
    """With the documents' defaults."""
    return rollouts()


@pytest.fixture(scope="module")
def other(rollouts: Rollouts) -> Done:
    """With everything else."""
    return rollouts(
        provider_name="local",
        snapshot_name="init_state",
        action_space="computer_13",
        observation_type="screenshot",
        screen_width=1024,
        screen_height=768,
        headless=False,
        require_terminal=True,
        os_type="Ubuntu",
        client_password="other-word",
        sleep_after_execution=0.0,
        enable_recording=False,
        agent={"model_name": "another", "evaluation_metric": "f1_score"},
    )


EFFECTS: dict[str, Callable[[Done], object]] = {
    "observation_type": lambda done: "Accessibility tree" in done.text,
    "screen_width": lambda done: done.screen_size()[0],
    "screen_height": lambda done: done.screen_size()[1],
    "headless": lambda done: "headless is false" in done.log,
    "require_terminal": lambda done: "Terminal:\\nin-the-terminal" in done.text,
    "enable_recording": lambda done: "recording.mp4" in done.files(),
    "model_name": lambda done: done.run.outcomes()[0].model,
    "evaluation_metric": lambda done: done.records[0]["evaluation_score"],
}
"""What differs between the two runs, for each key that both of them can have."""


@pytest.mark.parametrize("key", EFFECTS)
def test_an_option_has_an_effect(usual: Done, other: Done, key: str) -> None:
    assert EFFECTS[key](usual) != EFFECTS[key](other)


def test_a_program_that_does_not_read_is_waited_for_as_long_as_is_said(rollouts: Rollouts) -> None:
    """How the wait after an action ends elsewhere, a busy machine decides; that it ends early here, it cannot."""
    deaf = "sh -c 'echo $PPID > ~/pid; touch ~/shown; exec cat'"
    launch = {"command": ["lxterminal", "--no-remote", "-t", "deaf", "-e", deaf]}
    task = {**TASK, "config": [
        {"type": "launch", "parameters": launch},
        TASK["config"][-1],
        {"type": "activate_window", "parameters": {"window_name": "deaf"}},
        {"type": "execute", "parameters": {"command": ["bash", "-c", "kill -STOP $(cat ~/pid)"]}},
    ]}  # fmt: skip
    done = rollouts(task, sleep_after_execution=3.0, observation_type="screenshot", require_a11y_tree=False)
    assert done.step().settled == SettleOutcome.CAPPED
    assert done.step().seconds[Stage.SETTLE] >= 3.0, "by default, it is 2 s"


def test_without_a_tree_none_is_seen(rollouts: Rollouts, usual: Done) -> None:
    assert "Accessibility tree" in usual.text
    assert "Accessibility tree" not in rollouts(require_a11y_tree=False).text


def test_an_action_space_is_what_the_agent_is_offered(rollouts: Rollouts) -> None:
    task = {"id": "t", "question": "Keep typing.", "answer": "x"}
    done = rollouts(task, provider_name="sim", action_space="pyautogui", agent={"max_turns": 2})
    assert "there is no tool 'computer'; tools: run_pyautogui" in done.text
    done = rollouts(task, provider_name="sim", action_space="claude_computer_use", agent={"max_turns": 2})
    assert "action" in done.text
    assert "there is no tool" not in done.text


def test_marks_are_drawn_and_listed(rollouts: Rollouts, usual: Done) -> None:
    done = rollouts(observation_type="som")
    assert "index\\ttag\\tname\\ttext" in done.text
    assert "index\\ttag" not in usual.text


def test_the_password_is_the_desktops(rollouts: Rollouts) -> None:
    task = {**TASK, "evaluator": {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": "cat ~/who.txt"},
        "expected": {"type": "rule", "rules": {"expected": "0"}},
    }}  # fmt: skip
    assert rollouts(task).records[0]["evaluation_score"] == 0
    assert rollouts(task, client_password="other-word").records[0]["evaluation_score"] == 1


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"provider_name": "vmware"}, "program vmrun is not on this machine.*DESKROLL_PROVIDER=local"),
        ({"provider_name": "virtualbox"}, "not part of this version.*VBoxManage.*DESKROLL_PROVIDER=local"),
        *[
            ({"provider_name": name}, "not part of this version.*DESKROLL_PROVIDER=local")
            for name in ("aws", "gcp", "azure", "aliyun", "volcengine")
        ],
        ({"provider_name": "dcoker"}, "dcoker"),
        ({"provider_name": "local", "path_to_vm": "/vm.vmx"}, "path_to_vm"),
        ({"snapshot_name": "clean_desktop"}, "local desktops have no snapshots"),
        ({"action_space": "vim"}, "there is no action_space 'vim'; known: computer_13, pyautogui, claude_computer_use"),
        ({"observation_type": "smell"}, "there is no observation 'smell'; known: screenshot, a11y_tree"),
        ({"observation_type": "a11y_tree", "require_a11y_tree": False}, "nothing would be seen"),
        ({"os_type": "Windows"}, "this version has no 'Windows'; allowed: Ubuntu"),
        ({"region": "us-east-1"}, "region belongs to clouds"),
        ({"headless": "yes"}, "headless is 'yes'; allowed: True, False"),
        ({"screen_width": 7}, "screen_width"),
        ({"screen_heigth": 700}, "screen_heigth"),
        ({"sleep_after_execution": -1}, "sleep_after_execution"),
        ({"agent": {"max_turn": 3}}, "agent_config_dict has no key 'max_turn'; known: .*max_turns"),
        ({"agent": {"evaluation_metric": "bleu"}}, "allowed: exact_match, f1_score"),
        ({"agent": {"save_results": "no"}}, "save_results is 'no'; allowed: True, False"),
        ({"agent": {"evaluate_results": "no"}}, "evaluate_results is 'no'; allowed: True, False"),
        (
            {"mode": "math", "evaluation_metric": "f1_score", "agent": {"evaluation_metric": "exact_match"}},
            "evaluation_metric is set twice",
        ),
        ({"agent": {"max_turns": 0}}, "max_turns"),
        ({"mode": "math", "path_to_vm": "/vm.vmx"}, "path_to_vm belongs to desktops, and env_mode 'math' has none"),
        ({"mode": "math", "require_terminal": True}, "require_terminal"),
        ({"mode": "chess"}, "chess"),
        ({"screen_width": 7}, r"^env_kwargs \(env_mode osworld\): screen_width: "),
        ({"agent": {"max_turns": 0}}, "agent_config_dict.max_turns: "),
        ({"agent": {"max_retries": -1}}, "^agent_config_dict: max_retries: "),
        ({"agent": {"model_name": 5}}, "agent_config_dict.model_name: "),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(rollouts: Rollouts, kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        rollouts(**kwargs)


def test_a_machine_that_is_not_there_is_told_under_auto(rollouts: Rollouts) -> None:
    task = {"id": "no", "instruction": "Fly.", "evaluator": {"func": "infeasible"}}
    done = rollouts(task, path_to_vm="/vms/ubuntu.vmx")
    assert "path_to_vm is not used" in done.log
    assert done.config["provider"] == "local"


def test_a_provider_is_the_one_that_is_named(rollouts: Rollouts) -> None:
    task = {"id": "no", "instruction": "Fly.", "evaluator": {"func": "infeasible"}}
    assert rollouts(task, provider_name="sim").run.outcomes()[0].desktop.startswith("sim-")
    assert rollouts(task).run.outcomes()[0].desktop.startswith("local-")


QUESTION = {"id": "q", "question": "What is 6 * 7?", "answer": "42"}


def test_results_are_saved_unless_told_not_to(rollouts: Rollouts) -> None:
    kept, gone = rollouts(QUESTION, mode="math"), rollouts(QUESTION, mode="math", agent={"save_results": False})
    assert kept.run is not None
    assert gone.run is None
    assert "nothing was saved" in gone.log
    assert gone.records[0]["evaluation_score"] == 1
    assert gone.records[0]["messages"]


def test_results_are_judged_unless_told_not_to(rollouts: Rollouts) -> None:
    record = rollouts(QUESTION, mode="math", agent={"evaluate_results": False}).records[0]
    assert (record["answer"], record["evaluation_score"], record["success"]) == ("42", None, None)
    assert record["error"] == "evaluation is switched off (evaluate_results is False)"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"env_kwargs": None}, "env_kwargs is None; it must be a dict"),
        ({"env_kwargs": [("client_password", "sesame")]}, "env_kwargs is a list; it must be a dict"),
        ({"env_kwargs": {5: 1}}, "env_kwargs has the key 5; keys are texts"),
        ({"agent_config_dict": None}, "agent_config_dict is None; it must be a dict"),
        ({"agent_config_dict": ["max_turns"]}, "agent_config_dict is a list; it must be a dict"),
        ({"output_dir": None}, "output_dir is None; it must be the path of a folder"),
        ({"output_dir": ""}, "output_dir is ''; it must be the path of a folder"),
        ({"use_resource_pool": "no"}, "use_resource_pool is 'no'; it must be True or False"),
        ({"env_mode": None}, "env_mode is None; it must be a text"),
        ({"num_rollouts": None}, "num_rollouts: "),
    ],
)
def test_a_value_of_a_wrong_kind_is_one_message(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(QUESTION))
    config = ParallelRolloutConfig(**{"env_mode": "math", "output_dir": str(tmp_path / "out"), **given})
    with pytest.raises(InputError, match=f"^ParallelRolloutConfig: {said}"):
        run_parallel_rollout(config, Benchmark(data_path=str(path)))


def test_what_is_advised_names_what_the_documents_name(rollouts: Rollouts) -> None:
    task = {"id": "t", "question": "q", "answer": "a", "env_config": {"screen_width": 800}}
    with pytest.raises(InputError, match=r"env_config.screen_width: there is no such field.*\(env_kwargs\)"):
        rollouts(task, provider_name="sim")


def test_turns_are_limited(rollouts: Rollouts) -> None:
    task = {"id": "t", "question": "Keep typing.", "answer": "x"}
    done = rollouts(task, provider_name="sim", agent={"max_turns": 2})
    assert (done.run.outcomes()[0].stop, done.run.outcomes()[0].actions) == ("max_turns", 2)


def test_a_wrong_call_may_be_mended_so_often(rollouts: Rollouts) -> None:
    task = {"id": "w", "question": "Be wrong once.", "answer": "42"}
    assert rollouts(task, provider_name="sim").records[0]["evaluation_score"] == 1
    done = rollouts(task, provider_name="sim", agent={"max_retries": 0})
    assert done.records[0]["evaluation_score"] == 0
    assert "could not be used" in str(done.records[0]["error"])


def test_the_defaults_are_the_documents() -> None:
    config = ParallelRolloutConfig()
    assert (config.num_rollouts, config.num_vms, config.env_mode) == (5, 3, "osworld")
    assert (config.env_kwargs, config.agent_config_dict) == ({}, {})
    assert (config.output_dir, config.use_resource_pool) == ("results", True)


def test_the_defaults_of_the_dictionaries(usual: Done) -> None:
    config = usual.config
    assert config["model"]["name"] == "gpt-4"
    assert config["limits"]["max_turns"] == 50
    assert config["agent_options"]["max_retries"] == 3
    assert config["env_options"] == {"enable_recording": True, "evaluation_metric": "exact_match"}
    assert usual.screen_size() == (1920, 1080)
