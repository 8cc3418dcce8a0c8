"""The document on concurrency: its commands and its example, from a checkout: what they would do, and to their end.

Trained and evaluated is on embedded desktops, with a scripted model in place of vLLM and the `scripted` trainer.
"""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deskroll.host.family import find_marked
from deskroll.train.log import TrainLog
from tests.models.vllm.scripted_vllm import write_command
from tests.models.weights.files import one_file
from tests.seeds import documents
from tests.seeds.conftest import ROOT, Came, Checkout
from tests.waiting import wait_until

DEFAULTS = """\
trainer: scripted
provider: sim
models: {{ckpt_path: "{weights}", vllm_command: "true"}}
"""
"""What the commands leave out: who trains, on which desktops, and who serves which weights; nothing is started."""


@dataclass(frozen=True)
class Here:
    """A checkout, and a file of defaults beside it."""

    checkout: Checkout
    defaults: Path

    def run(self, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
        environment = {**self.checkout.env, "DESKROLL_TRAIN_CONFIG": str(self.defaults), **env}
        return subprocess.run(
            command, cwd=self.checkout.folder, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    def plan(self, command: str) -> dict[str, Any]:
        """What a command, as it is written, would do."""
        ended = self.run("bash", "-ec", f"{command.rstrip()} --dry-run --json")
        assert (ended.returncode, ended.stderr) == (0, "")
        found: dict[str, Any] = json.loads(ended.stdout)
        return found


@pytest.fixture
def here(checkout: Checkout, tmp_path: Path) -> Here:
    """The checkout's root holds what the project's does; the rest is elsewhere."""
    weights = one_file(tmp_path / "weights")
    defaults = tmp_path / "defaults.yaml"
    defaults.write_text(DEFAULTS.format(weights=weights))
    return Here(checkout, defaults)


@pytest.mark.parametrize(
    ("command", "groups", "desktops", "evaluated"),
    [
        pytest.param(documents.TRAIN.replace(documents.OTHER_PARAMS, ""), 8, 32, 10, id="as it is"),
        pytest.param(documents.TRAIN_LARGE_EVALUATION, 5, 20, 20, id="20 tasks, 5 at a time"),
        pytest.param(documents.TRAIN_SMALL, 2, 8, 10, id="2 groups of 4"),
    ],
)
def test_a_command(here: Here, command: str, groups: int, desktops: int, evaluated: int) -> None:
    assert documents.OTHER_PARAMS not in command
    plan = here.plan(command)
    assert (plan["groups_in_flight"], plan["num_rollouts"], plan["num_vms"]) == (groups, desktops, desktops)
    phases = {each["phase"]: each for each in plan["phases"]}
    assert list(phases) == ["baseline", "train", "eval"]
    assert (phases["baseline"]["tasks"], phases["eval"]["tasks"], phases["train"]["tasks"]) == (
        evaluated,
        evaluated,
        30,
    )
    assert phases["train"]["groups"] == 100 * 2


def test_the_placeholder_is_told_apart(here: Here) -> None:
    ended = here.run("bash", "-ec", documents.TRAIN)
    assert ended.returncode == 2
    assert "No such option '--other-params...'" in ended.stderr


def test_both_spellings_of_a_flag(here: Here) -> None:
    dashes = here.plan(documents.TRAIN_SMALL)
    underscores = here.plan(documents.TRAIN_SMALL.replace("-rollouts", "_rollouts").replace("-per-batch", "_per_batch"))
    assert {**dashes, "folder": "", "available_mb": 0} == {**underscores, "folder": "", "available_mb": 0}


def test_a_machine_without_a_server_is_told_so(here: Here) -> None:
    here.defaults.write_text("trainer: scripted\nprovider: sim\n")
    ended = here.run("bash", "-ec", documents.TRAIN_SMALL)
    assert ended.returncode == 2
    assert ended.stderr.startswith("deskroll: nobody serves the model Qwen/Qwen3-VL-30B-A3B-Instruct")


TO_THE_END = """\
trainer: scripted
provider: local
models: {{ckpt_path: "{weights}", gpus: none, vllm_command: {command}}}
steps: 2
tasks: {{source_type: demo_training, category: infeasible}}
agent: prompt
env_options: {{observation_type: a11y_tree}}
"""
"""Of what cannot be done a seed says so, which is right, or that it is done: groups have a signal."""


def marked(here: Here) -> str:
    return f"DESKROLL_TEST_OF={here.defaults}"


def check_whole(here: Here, came: Came, groups: int, evaluated: int) -> None:
    """That all of it was done, under its phases and rounds, within the limits, and that nothing is left."""
    assert came.code == 0, came.err
    assert f"[Concurrency] Set max concurrent rollouts to {groups}\n" in came.err
    log = TrainLog(next((here.checkout.folder / "results").iterdir()))
    log.open()
    assert [each.step for each in log.steps] == [1, 2]
    trained = {("train", group.round) for step in log.steps for group in step.groups}
    outcomes = list(came.run.outcomes())
    rounds = Counter((each.key.phase, each.key.round) for each in outcomes)
    assert rounds.keys() >= trained | {("baseline", 0), ("eval", 2)}
    assert {phase for phase, _ in rounds} == {"baseline", "train", "eval"}
    assert (rounds["baseline", 0], rounds["eval", 2]) == (evaluated, evaluated)
    assert all(each.points is not None for each in outcomes if each.key.phase != "train")
    versions = {(each.key.phase, *each.versions) for each in outcomes if each.key.phase != "train"}
    assert versions == {("baseline", "0"), ("eval", "2")}
    assert came.most_desktops() <= groups * 4
    assert came.run.verify() == []
    assert wait_until(lambda: not find_marked(marked(here)), "nothing of it runs")
    assert json.loads(here.run("deskroll", "desktops", "ls", "--json").stdout) == []


@pytest.fixture
def served(here: Here, tmp_path: Path) -> Here:
    """The same, with somebody who serves and somebody who trains."""
    command = json.dumps(write_command(tmp_path, "```FAIL```", "```DONE```"))
    here.defaults.write_text(TO_THE_END.format(weights=tmp_path / "weights", command=command))
    here.checkout.env |= {"DESKROLL_TRAIN_CONFIG": str(here.defaults), "DESKROLL_TEST_OF": str(here.defaults)}
    return here


@pytest.mark.parametrize(
    ("command", "groups", "evaluated"),
    [
        pytest.param(documents.TRAIN.replace(documents.OTHER_PARAMS, ""), 8, 10, id="as it is"),
        pytest.param(documents.TRAIN_LARGE_EVALUATION, 5, 20, id="20 tasks, 5 at a time"),
        pytest.param(documents.TRAIN_SMALL, 2, 10, id="2 groups of 4"),
    ],
)
def test_a_command_to_its_end(served: Here, command: str, groups: int, evaluated: int) -> None:
    came = served.checkout.shell(command)
    assert "2 of 2 steps taken" in came.out
    check_whole(served, came, groups, evaluated)


def test_the_example_to_its_end(served: Here) -> None:
    check_whole(served, served.checkout.python(documents.TRAIN_IN_CODE), 8, 10)


IMPORTING = "from tinker_cookbook.recipes.cua_rl.core.train import CLIConfig, cli_main\n"
PRINTING = "import json, sys; print(json.dumps([CLIConfig(max_concurrent_rollouts=3).max_concurrent_rollouts]))\n"


def test_the_class_of_the_example_is_found_by_its_path(here: Here) -> None:
    assert IMPORTING.strip() in documents.TRAIN_IN_CODE
    assert "CLIConfig(" in documents.TRAIN_IN_CODE
    (here.checkout.folder / "script.py").write_text(IMPORTING + PRINTING)
    ended = here.run("python", "script.py")
    assert (ended.returncode, ended.stdout) == (0, "[3]\n"), ended.stderr


def test_an_installed_tinker_cookbook_is_found_first(here: Here, tmp_path: Path) -> None:
    core = tmp_path / "site/tinker_cookbook/recipes/cua_rl/core"
    core.mkdir(parents=True)
    for folder in (core, *core.parents):
        if folder.name == "site":
            break
        (folder / "__init__.py").touch()
    (core / "train.py").write_text("CLIConfig = cli_main = 'theirs'\n")
    (here.checkout.folder / "script.py").write_text(f"{IMPORTING}print(CLIConfig)\n")
    # Behind the checkout itself, as site-packages are.
    ended = here.run("python", "script.py", PYTHONPATH=str(tmp_path / "site"))
    assert (ended.returncode, ended.stdout) == (0, "theirs\n"), ended.stderr


def test_it_is_no_package_of_ours() -> None:
    assert list((ROOT / "tinker_cookbook").rglob("__init__.py")) == []
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert built["wheel"]["packages"] == ["src/deskroll"]
    assert "tinker_cookbook" not in built["sdist"]["include"]
