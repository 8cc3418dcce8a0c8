"""Each kind of agent does one task from beginning to end: on simulated desktops, and on real ones where it is cheap."""

from __future__ import annotations

from typing import Any

import pytest

from deskroll.actions import Action, Answer, Click, Done, Fail, MoveTo, Script, Typing, Wait
from deskroll.errors import FailureClass
from deskroll.models.scripted import Script as Lines
from deskroll.rollout.session import Session
from deskroll.tasks import parse_task
from deskroll.types import Episode, StopReason, Task
from tests.agents.test_claude import calling, use
from tests.models.servers import canned
from tests.models.test_anthropic import said, text
from tests.rollout.conftest import Runs, runs

__all__ = ["runs"]

CLICK, TYPE = Click("left", 960, 540), Typing("hi\n")
REPLIES = {
    "uitars": (
        "Thought: it\nAction: click(start_box='(966,546)')",
        "Action: type(content='hi\\n')",
        "Action: finished(content='42')",
    ),
    "qwen": tuple(
        f'Action: so.\n<tool_call>{{"name": "computer_use", "arguments": {arguments}}}</tool_call>'
        for arguments in (
            '{"action": "left_click", "coordinate": [500, 500]}',
            '{"action": "type", "text": "hi\\n"}',
            '{"action": "answer", "text": "42"}',
        )
    ),
}


def task(**fields: Any) -> Task:
    return parse_task({"id": "task-1", "question": "What is 6*7?", "answer": "42", **fields}, "here")


INFEASIBLE: dict[str, Any] = {"evaluator": {"func": "infeasible"}, "answer": None}


def performed(runs: Runs, episode: Episode) -> list[Action]:
    steps = runs.read().attempt(episode.key, episode.attempt).steps()
    return [action for step in steps for action in step.actions]


async def run(runs: Runs, agent: str, tried: Task, *lines: str, provider: str = "sim", **fields: Any) -> Episode:
    """One episode of a model that says this, or of an agent without one."""
    script = Lines.replying(*(lines or ("nobody asks",)))
    (episode,) = await runs.run(script, [tried], env="osworld", agent=agent, provider=provider, num_vms=1, **fields)
    assert runs.read(fields.get("run_id", "run")).verify() == []
    return episode


@pytest.mark.parametrize("agent", REPLIES)
async def test_models_that_write_text(agent: str, runs: Runs) -> None:
    episode = await run(runs, agent, task(), *REPLIES[agent])
    assert (episode.failure, episode.stop, episode.score.value) == (None, StopReason.ANSWER, 1.0)
    assert performed(runs, episode) == [CLICK, TYPE, Answer("42")]
    assert episode.usage.calls == 3


async def test_the_baseline_says_that_it_cannot_be_done(runs: Runs) -> None:
    lines = ("```python\npyautogui.click(960, 540)\npyautogui.write('hi\\n')\n```", "There is none.\n```FAIL```")
    episode = await run(runs, "prompt", task(**INFEASIBLE), *lines, env_options={"action_space": "pyautogui"})
    assert (episode.failure, episode.stop, episode.score.value) == (None, StopReason.FAIL, 1.0)
    assert performed(runs, episode) == [CLICK, TYPE, Fail()]


async def test_claude(runs: Runs) -> None:
    answers = (
        calling(use("a", "left_click", coordinate=[960, 540]), use("b", "type", text="hi\n")),
        calling(use("c", "screenshot")),
        said(text("42")),
    )
    async with canned(*answers) as server:
        config = runs.config(
            env="osworld",
            agent="claude",
            provider="sim",
            num_vms=1,
            model={"name": "claude-test", "base_url": server.url},
        )
        async with Session.open(config, [task()]) as session:
            (episode,) = await session.run()
        assert len(server.bodies) == 3
    assert (episode.failure, episode.stop, episode.score.value) == (None, StopReason.ANSWER, 1.0)
    assert performed(runs, episode) == [CLICK, TYPE, Wait(0.0), Answer("42")]
    assert (episode.model, episode.usage.prompt_tokens) == ("claude-test", 300)


SOLUTION = {
    "solution": [{"action_type": "MOVE_TO", "parameters": {"x": 5, "y": 6}}, "FAIL"],
    "near_misses": {"did_nothing": []},
}


async def test_the_oracle(runs: Runs) -> None:
    tried = task(**INFEASIBLE, **SOLUTION)
    right = await run(runs, "oracle", tried)
    assert (right.failure, right.score.value) == (None, 1.0)
    assert performed(runs, right) == [MoveTo(5, 6), Fail()]
    wrong = await run(runs, "oracle", tried, agent_options={"play": "did_nothing"}, run_id="miss")
    assert (wrong.failure, wrong.score.value) == (None, 0.0)


async def test_the_oracle_without_a_solution_has_failed(runs: Runs) -> None:
    episode = await run(runs, "oracle", task())
    assert episode.failure is not None
    assert episode.failure.failure_class is FailureClass.AGENT
    assert "task 'task-1': solution is missing" in episode.failure.message


async def test_noop_and_random(runs: Runs) -> None:
    tried = task(**INFEASIBLE)
    nothing = await run(runs, "noop", tried, run_id="noop")
    assert (nothing.failure, nothing.stop, nothing.score.value) == (None, StopReason.DONE, 0.0)
    drawn = []
    for name in ("once", "again"):
        (episode,) = await runs.run(
            Lines.replying("nobody asks"),
            [tried],
            env="osworld",
            agent="random",
            provider="sim",
            num_vms=1,
            run_id=name,
        )
        assert (episode.failure, episode.score.value, episode.usage.calls) == (None, 0.0, 0)
        drawn.append([step.actions for step in runs.read(name).attempt(episode.key, episode.attempt).steps()])
    assert drawn[0] == drawn[1]
    assert drawn[0][-1] == (Done(),)


async def test_an_agent_of_osworlds_own_kind(runs: Runs) -> None:
    options = {
        "class": "tests.agents.foreign:Listed",
        "predictions": ["pyautogui.click(960, 540)", {"action_type": "TYPING", "text": "hi\n"}, "FAIL"],
    }
    episode = await run(runs, "adapter", task(**INFEASIBLE), agent_options=options)
    assert (episode.failure, episode.score.value) == (None, 1.0)
    assert performed(runs, episode) == [CLICK, TYPE, Fail()]


async def test_on_a_task_without_a_screen_they_say_so(runs: Runs) -> None:
    (episode,) = await runs.run(Lines.replying("42"), [task()], env="math", agent="uitars")
    assert episode.failure is not None
    assert "agent uitars acts on a screen, and the environment has none" in episode.failure.message


# --- real desktops ---------------------------------------------------------------------------------------

WRITES = "with open('/tmp/made', 'w') as file:\n    file.write('6*7')"


async def test_the_baselines_code_runs_inside_a_real_desktop(runs: Runs) -> None:
    judged = {
        "func": "exact_match",
        "result": {"type": "vm_file", "path": "/tmp/made", "dest": "made"},
        "expected": {"type": "rule", "rules": {"expected": "6*7"}},
    }
    lines = (f"```python\n{WRITES}\n```", "```DONE```")
    options = {"screen_width": 800, "screen_height": 600, "action_space": "pyautogui"}
    episode = await run(
        runs, "prompt", task(evaluator=judged, answer=None), *lines, provider="local", env_options=options
    )
    assert (episode.failure, episode.stop) == (None, StopReason.DONE)
    assert episode.score.value == 1.0, episode.score
    assert performed(runs, episode) == [Script(WRITES), Done()]


async def test_the_oracle_and_the_random_agent_on_a_real_desktop(runs: Runs) -> None:
    options = {"screen_width": 800, "screen_height": 600}
    tried = task(**INFEASIBLE, **SOLUTION)
    right = await run(runs, "oracle", tried, provider="local", env_options=options)
    assert (right.failure, right.score.value) == (None, 1.0)
    drawn = await run(
        runs, "random", tried, provider="local", env_options=options, agent_options={"steps": 5}, run_id="random"
    )
    assert (drawn.failure, drawn.score.value, drawn.steps) == (None, 0.0, 6)


async def test_an_agent_knows_the_size_of_pictures_that_it_is_not_shown(runs: Runs) -> None:
    options = {"class": "tests.agents.foreign:Odd", "value": ["so", ["pyautogui.click(480, 270)", "DONE"]]}
    shown = {"observation_type": "a11y_tree", "image_width": 960, "image_height": 540}
    episode = await run(runs, "adapter", task(**INFEASIBLE), agent_options=options, env_options=shown)
    assert performed(runs, episode) == [Click("left", 961, 541), Done()]
