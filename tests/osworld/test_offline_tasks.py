"""OSWorld's own tasks that need neither downloads nor the web: solved by mouse and keyboard, judged by upstream's code.

`solutions/<id>.json` is what the oracle plays for the task of that id; the tasks themselves are read from the workshop,
where they are at hand. Two of the offline tasks are not among them:

- 937087b6 (make VLC the default player): where VLC is the only player, it is the default already, so that an untouched
  desktop scores 1.
- ef9d12bd (bring Impress's slide panel back): not tried; its set-up hides the panel by keys, which the dialogs of a
  first start would take.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from deskroll.models.scripted import Script
from deskroll.tasks import parse_task
from deskroll.types import Episode, StopReason, Task
from tests.envs.osworld_evaluate.conftest import upstream
from tests.rollout.conftest import Runs, runs

__all__ = ["runs", "upstream"]

EXAMPLES = Path(__file__).parents[3] / "shared" / "osworld" / "examples"
"""Where OSWorld's tasks are, in the workshop; nothing of them is part of the project."""
SOLUTIONS = Path(__file__).with_name("solutions")
PROGRAMS = {
    "gimp": ("gimp",),
    "libreoffice_impress": ("libreoffice", "loimpress"),
    "os": ("x-terminal-emulator", "pcmanfm"),
    "vlc": ("vlc",),
}
"""What the tasks of a domain, and their solutions, start."""
TASKS = {"gimp": 3, "libreoffice_impress": 1, "os": 1, "vlc": 7}

pytestmark = [
    pytest.mark.skipif(not EXAMPLES.is_dir(), reason="OSWorld's task files are not here"),
    pytest.mark.usefixtures("upstream"),
]


def solved_tasks(domain: str) -> list[Task]:
    """The tasks of a domain for which there is a solution, with it."""
    tasks = []
    for file in sorted((EXAMPLES / domain).glob("*.json")):
        if (solution := SOLUTIONS / file.name).exists():
            written = json.loads(file.read_text(encoding="utf-8"))
            tasks.append(parse_task({**written, "solution": json.loads(solution.read_text())}, file.name))
    return tasks


async def stored(runs: Runs, tasks: list[Task], agent: str, **options: float) -> list[Episode]:
    """The outcomes of a run on two desktops, as they are kept."""
    await runs.run(
        Script.replying("nobody asks"),
        tasks,
        run_id=agent,
        env="osworld",
        env_options={"evaluators": "upstream"},
        agent=agent,
        agent_options=options,
        provider="local",
        num_vms=2,
        num_rollouts=2,
        limits={"max_turns": 300},
    )
    kept = runs.read(agent)
    assert kept.verify() == []
    return kept.outcomes()


@pytest.mark.timeout(900)  # programs that take 5 s to start on an idle machine take a minute on one under load
@pytest.mark.parametrize("domain", sorted(TASKS))
async def test_solved_by_mouse_and_keyboard_and_not_by_doing_nothing(domain: str, runs: Runs) -> None:
    for program in PROGRAMS[domain]:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    tasks = solved_tasks(domain)
    assert len(tasks) == TASKS[domain]
    untouched = await stored(runs, tasks, "noop")
    assert {each.key.task: (each.failure, each.score.value) for each in untouched} == {
        task.id: (None, 0.0) for task in tasks
    }
    solved = await stored(runs, tasks, "oracle", patience=180.0)
    assert {each.key.task: (each.failure, each.stop, each.score.value) for each in solved} == {
        task.id: (None, StopReason.DONE, 1.0) for task in tasks
    }
