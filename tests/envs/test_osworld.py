"""Tasks on a desktop: set-up, actions, what is seen, and judging, on simulated desktops and on a real one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from deskroll.actions import Answer, Click, Done, Fail, Typing
from deskroll.desktops.base import Desktop, DesktopSpec
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers.local.provider import LocalProvider
from deskroll.desktops.providers.sim.provider import SimProvider
from deskroll.desktops.providers.sim.settings import SimSettings
from deskroll.envs import Ending, EnvContext, env_kind
from deskroll.envs.osworld.env import OSWorldEnv
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.errors import ActionError, EvaluatorError, FailureClass, InputError, SetupError
from deskroll.tasks import parse_task
from deskroll.types import StopReason, Task, ToolRequest

SMALL = OSWorldSettings(screen_width=320, screen_height=240)
NO_WAIT = SMALL.model_copy(update={"sleep_after_execution": 0.0})
PNG = b"\x89PNG"


def task(**fields: Any) -> Task:
    return parse_task({"id": "t", "instruction": "do it", **fields}, "here")


def step(kind: str, **parameters: Any) -> dict[str, Any]:
    return {"type": kind, "parameters": parameters}


def judged(result: dict[str, Any], expected: str = "42") -> dict[str, Any]:
    return {"func": "exact_match", "result": result, "expected": {"type": "rule", "rules": {"expected": expected}}}


@pytest_asyncio.fixture
async def desktop() -> AsyncIterator[GuestDesktop]:
    """A simulated one, whose files and commands are judged as if they were another's."""
    settings = SimSettings.model_validate({"boot": "0", "step": "0"})
    async with SimProvider(settings) as provider:
        address = await provider.boot(DesktopSpec(width=320, height=240))
        async with GuestDesktop(msgspec.structs.replace(address, simulated=False)) as guest:
            yield guest


def made(desktop: Desktop, settings: OSWorldSettings = SMALL, **fields: Any) -> OSWorldEnv:
    return OSWorldEnv(task(**fields), settings, EnvContext(desktop=desktop))


# --- set-up ----------------------------------------------------------------------------------------------


async def test_the_beginning_is_shown_after_the_set_up(desktop: GuestDesktop) -> None:
    steps = [step("launch", command=["gedit", "x"]), step("sleep", seconds=0), step("execute", command="true")]
    seen = await made(desktop, config=steps).reset()
    assert seen.instruction == "do it"
    assert seen.screenshot is not None
    assert seen.screenshot.startswith(PNG)
    assert "gedit" in await desktop.accessibility_tree()
    assert (seen.accessibility_tree or "").startswith("tag\tname\ttext")
    assert seen.results == ()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (step("frobnicate"), r"set-up step 1 \(frobnicate\): there is no such step; known: execute"),
        (step("sleep"), r"set-up step 1 \(sleep\): .*missing required field `seconds`"),
        (step("sleep", seconds="soon"), r"set-up step 1 \(sleep\): Expected `float`"),
        (step("execute", command=7), r"set-up step 1 \(execute\)"),
        ({"type": "sleep", "parameters": None}, r"set-up step 1 \(sleep\): Expected `object`"),
        ({}, r"set-up step 1 \(None\): there is no such step"),
    ],
)
async def test_a_set_up_step_that_cannot_be_done(bad: dict[str, Any], words: str, desktop: GuestDesktop) -> None:
    with pytest.raises(SetupError, match=rf"task 't', {words}") as caught:
        await made(desktop, config=[step("sleep", seconds=0), bad]).reset()
    assert caught.value.failure is FailureClass.SETUP


def test_it_is_nothing_without_a_desktop() -> None:
    with pytest.raises(SetupError, match="task 't' needs a desktop, and none was given"):
        OSWorldEnv(task(), SMALL, EnvContext())


# --- what desktop it needs -------------------------------------------------------------------------------


def test_the_spec_is_the_runs_with_what_the_task_asks_for() -> None:
    kind = env_kind("osworld")
    plain = DesktopSpec(width=320, height=240)
    assert kind.desktop_spec(task(), SMALL) == plain
    assert kind.desktop_spec(task(env_config=None), SMALL) == plain
    asked = {"proxy": True, "snapshot": "chrome"}
    wish = {"proxy": True, "fixed_ip": "true"}
    assert kind.desktop_spec(task(**wish), SMALL) == plain
    granted = SMALL.model_copy(update={"enable_proxy": True, "enable_fixed_ip": True})
    assert kind.desktop_spec(task(**wish), granted) == DesktopSpec(width=320, height=240, proxy=True, fixed_ip=True)
    assert kind.desktop_spec(task(), granted) == plain
    assert kind.desktop_spec(task(env_config=asked), SMALL) == DesktopSpec(
        width=320, height=240, proxy=True, snapshot="chrome"
    )


@pytest.mark.parametrize("config", [{"proxy": "yes"}, {"snapshot": 3}, {"width": 800}, {"other": 1}, [], "chrome", 0])
def test_an_env_config_of_a_wrong_kind(config: object) -> None:
    with pytest.raises(InputError, match="env_config"):
        OSWorldEnv.desktop_spec(task(env_config=config), SMALL)


# --- acting and seeing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "screen", "tree"),
    [("screenshot", True, False), ("a11y_tree", False, True), ("screenshot_a11y_tree", True, True)],
)
async def test_what_is_seen_is_what_was_asked_for(kind: str, screen: bool, tree: bool, desktop: GuestDesktop) -> None:
    settings = OSWorldSettings.model_validate({**NO_WAIT.model_dump(), "observation_type": kind})
    env = made(desktop, settings)
    for seen in (await env.reset(), (await env.step([Click(x=1, y=1)])).observation):
        assert (seen.screenshot is not None, seen.accessibility_tree is not None) == (screen, tree)


async def test_each_action_has_its_result_and_the_first_bad_one_ends_the_step(desktop: GuestDesktop) -> None:
    moment = await made(desktop).step([Click(x=1, y=1), Click(x=999, y=1), Typing(text="a")])
    fine, wrong, left = moment.observation.results
    assert fine == ""
    assert wrong.startswith("error: ")
    assert "999" in wrong
    assert left == "error: not performed, because an action before it failed"
    assert moment.stop is None


@pytest.mark.parametrize(
    ("last", "stop", "answer"),
    [(Done(), StopReason.DONE, None), (Fail(), StopReason.FAIL, None), (Answer(text="7"), StopReason.ANSWER, "7")],
)
async def test_what_ends_the_episode_ends_it_there(
    last: Done | Fail | Answer, stop: StopReason, answer: str | None, desktop: GuestDesktop
) -> None:
    env = made(desktop)
    moment = await env.step([Click(x=1, y=1), last, Click(x=2, y=2)])
    assert (moment.stop, moment.answer, moment.observation.results) == (stop, answer, ("",))
    alone = await env.step([last])
    assert (alone.stop, alone.answer, alone.observation.results) == (stop, answer, ())


def decoded(env: OSWorldEnv, arguments: object, name: str = "computer") -> object:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return env.decode(ToolRequest(id="c", name=name, arguments=text))


async def test_calls_are_actions(desktop: GuestDesktop) -> None:
    env = made(desktop)
    assert decoded(env, {"action_type": "CLICK", "parameters": {"x": 3, "y": 4}}) == (Click(x=3, y=4),)
    assert decoded(env, {"action_type": "DONE"}) == (Done(),)
    assert [tool.name for tool in env.tools] == ["computer"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "computer: the arguments are not valid JSON"),
        ("{", "computer: the arguments are not valid JSON"),
        ("[" * 100_000, "computer: the arguments are not valid JSON"),
        ("[]", r"the arguments are not an object"),
        ("{}", "lacks action_type"),
        ({"action_type": "FLY"}, "action_type"),
        ({"action_type": "CLICK", "parameters": {"xx": 320, "y": 0}}, "did you mean x"),
        ({"action_type": "TYPING"}, "text"),
    ],
)
async def test_a_call_that_is_no_action_says_what_is_wrong(
    arguments: object, words: str, desktop: GuestDesktop
) -> None:
    with pytest.raises(ActionError, match=words):
        decoded(made(desktop), arguments)


async def test_another_tool_is_told_which_there_are(desktop: GuestDesktop) -> None:
    with pytest.raises(ActionError, match="there is no tool 'browser'; tools: computer"):
        decoded(made(desktop), "{}", name="browser")


# --- judging ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "value"), [(StopReason.FAIL, 1.0), (StopReason.DONE, 0.0), (StopReason.MAX_TURNS, 0.0)]
)
async def test_infeasible(stop: StopReason, value: float, desktop: GuestDesktop) -> None:
    score = await made(desktop, evaluator={"func": "infeasible"}).score(Ending(stop=stop))
    assert score.value == value
    assert "the task cannot be done" in score.reason


@pytest.mark.parametrize(
    ("evaluator", "words"),
    [
        ({"func": "moonshine"}, "there is no evaluator 'moonshine'; known: exact_match, infeasible"),
        ({"func": ["moonshine"]}, "there is no evaluator 'moonshine'"),
        ({"func": "exact_match"}, "evaluator.expected is missing or not an object"),
        (judged({"type": "moonbeam"}), "there is no getter 'moonbeam'; known: vm_command_line, vm_file"),
        ({**judged({"type": "vm_file", "path": "/x"}), "expected": {"type": "rule"}}, "expected must be of type rule"),
        ({**judged({"type": "vm_file", "path": "/x"}), "result": "x"}, "evaluator.result is missing or not an object"),
    ],
)
async def test_what_cannot_be_judged_is_the_evaluators_failure(
    evaluator: dict[str, Any], words: str, desktop: GuestDesktop
) -> None:
    with pytest.raises(EvaluatorError, match=f"task 't': .*{words}") as caught:
        await made(desktop, evaluator=evaluator).score(Ending(stop=StopReason.DONE))
    assert caught.value.failure is FailureClass.EVALUATOR


@pytest.mark.parametrize(("content", "value"), [(b" 42\n", 1.0), (b"41", 0.0), (b"\xff", 0.0), (None, 0.0)])
async def test_a_file_is_judged_and_one_that_is_not_there_is_wrong(
    content: bytes | None, value: float, desktop: GuestDesktop
) -> None:
    if content is not None:
        await desktop.write_file("/home/user/out.txt", content)
    evaluator = judged({"type": "vm_file", "path": "/home/user/out.txt"})
    score = await made(desktop, evaluator=evaluator).score(Ending(stop=StopReason.DONE))
    assert score.value == value
    assert ("is not there" in score.reason) == (content is None)


async def test_who_gives_up_has_not_done_it(desktop: GuestDesktop) -> None:
    evaluator = judged({"type": "vm_command_line", "command": "echo 42"})
    score = await made(desktop, evaluator=evaluator).score(Ending(stop=StopReason.FAIL))
    assert (score.value, score.reason) == (0.0, "the agent gave up")


async def test_without_an_evaluator_the_answer_counts(desktop: GuestDesktop) -> None:
    env = made(desktop, answer="Forty two")
    assert (await env.score(Ending(stop=StopReason.ANSWER, answer="Forty two "))).value == 1.0
    assert (await env.score(Ending(stop=StopReason.DONE))).value == 0.0
    assert (await made(desktop).score(Ending(stop=StopReason.ANSWER, answer="x"))).value is None


# --- on a real desktop -----------------------------------------------------------------------------------


async def test_on_a_local_desktop() -> None:
    write = step("execute", command="mkdir -p ~/made && printf 42 > ~/made/out")
    async with LocalProvider() as provider:
        address = await provider.boot(DesktopSpec(width=320, height=240))
        async with GuestDesktop(address) as desktop:
            env = made(
                desktop, config=[write], evaluator=judged({"type": "vm_command_line", "command": "cat ~/made/out"})
            )
            seen = await env.reset()
            assert (seen.screenshot or b"").startswith(PNG)
            assert (await env.score(Ending(stop=StopReason.DONE))).value == 1.0
            with pytest.raises(SetupError, match=r"set-up step 0 \(execute\): .* ended with 3: oh"):
                await made(desktop, config=[step("execute", command="echo oh >&2; exit 3")]).reset()
            with pytest.raises(SetupError, match=r"set-up step 0 \(launch\)"):
                await made(desktop, config=[step("launch", command=["/no/such/program"])]).reset()
            with pytest.raises(SetupError, match=r"set-up step 0 \(execute\)"):
                await made(desktop, config=[step("execute", command=["/no/such/program"])]).reset()
            missing = judged({"type": "vm_file", "path": "/home/nobody-has-this"})
            assert (await made(desktop, evaluator=missing).score(Ending(stop=StopReason.DONE))).value == 0.0
            await desktop.check()
