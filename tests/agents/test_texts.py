"""Agents whose models write their actions as text: uitars, qwen, prompt."""

from __future__ import annotations

import json

import pytest

from deskroll.actions import Answer, Click, Done, Fail, Typing, Wait
from deskroll.agents import AgentContext, agent_kind, agent_settings
from deskroll.errors import AgentError
from deskroll.models.scripted import ToolUse, Turn
from deskroll.types import Observation
from tests.agents.screens import BEGIN, LATER, NoModel, no_tools, picture, told
from tests.agents.talk import Notes

UITARS_CLICK = "Thought: there\nAction: click(start_box='(966,546)')"
QWEN_CLICK = (
    'Action: Click it.\n<tool_call>\n{"name": "computer_use", "arguments": '
    '{"action": "left_click", "coordinate": [500, 500]}}\n</tool_call>'
)
PROMPT_CLICK = "I click it.\n```python\npyautogui.click(960, 540)\n```"
CLICKS = {"uitars": UITARS_CLICK, "qwen": QWEN_CLICK, "prompt": PROMPT_CLICK}
DONE = {
    "uitars": "Action: finished()",
    "qwen": '<tool_call>{"name": "computer_use", "arguments": {"action": "terminate"}}</tool_call>',
    "prompt": "```DONE```",
}
NAMES = pytest.mark.parametrize("name", CLICKS)


@NAMES
async def test_a_reply_is_performed_and_the_next_screen_shown(name: str) -> None:
    async with told(name, CLICKS[name], DONE[name]) as talk:
        first = await talk.agent.act(BEGIN)
        assert first.actions == (Click("left", 960, 540),)
        assert first.thought in ("there", "Click it.", "I click it.")
        second = await talk.agent.act(LATER)
        assert second.actions == (Done(),)
        roles = [each["role"] for each in talk.sent()]
        assert roles[-2:] == ["assistant", "user"]
        assert roles[0] == "system"
        assert sum(part["type"] == "image_url" for each in talk.sent() for part in _parts(each)) == 2
        assert "Do it." in talk.server.requests[0].decode()
        assert first.sent is not None
        assert len(talk.notes.stored) == first.sent.messages + 3


@NAMES
async def test_after_each_reply_comes_one_message_of_the_user(name: str) -> None:
    async with told(name, CLICKS[name], "hm", CLICKS[name], DONE[name]) as talk:
        for seen in (BEGIN, LATER, LATER, LATER):
            await talk.agent.act(seen)
        roles = [each["role"] for each in talk.sent()]
    first = roles.index("assistant")
    assert roles[:first] == ["system", "user"] + ["user"] * (name == "uitars")
    assert roles[first:] == ["assistant", "user"] * 3


@NAMES
async def test_the_model_is_told_what_was_wrong_and_may_mend_it(name: str) -> None:
    async with told(name, "hm", "well", CLICKS[name], max_retries=2) as talk:
        for n in range(2):
            decision = await talk.agent.act(BEGIN)
            assert (decision.actions, decision.gave_up) == ((), ""), n
            assert decision.problem.startswith("there is no ")
        assert (await talk.agent.act(Observation(results=(decision.problem,)))).actions == (Click("left", 960, 540),)
        assert talk.sent()[-1]["content"] == f"error: {decision.problem}"


@NAMES
async def test_who_never_mends_it_has_failed(name: str) -> None:
    async with told(name, "hm", max_retries=1) as talk:
        await talk.agent.act(BEGIN)
        last = await talk.agent.act(BEGIN)
        assert last.gave_up.startswith("2 replies in a row could not be used; the last one: there is no ")
        assert talk.server.stats.requests == 2


@NAMES
async def test_all_texts_stay_and_the_last_screens(name: str) -> None:
    async with told(name, *[CLICKS[name]] * 4, max_images=2) as talk:
        await talk.agent.act(BEGIN)
        for shade in range(3):
            await talk.agent.act(Observation(results=("",), screenshot=picture((28, 28), shade)))
        parts = [part for each in talk.sent() for part in _parts(each)]
        assert sum(part["type"] == "image_url" for part in parts) == 2
        assert sum(each["role"] == "assistant" for each in talk.sent()) == 3


@NAMES
async def test_what_was_refused_is_told(name: str) -> None:
    async with told(name, CLICKS[name], DONE[name]) as talk:
        await talk.agent.act(BEGIN)
        await talk.agent.act(Observation(results=("error: the pointer is stuck",), screenshot=picture((28, 28))))
        assert "error: the pointer is stuck" in json.dumps(talk.sent()[-1])


@NAMES
async def test_a_long_result_says_that_it_is_cut(name: str) -> None:
    async with told(name, CLICKS[name], DONE[name]) as talk:
        await talk.agent.act(BEGIN)
        await talk.agent.act(Observation(results=("x" * 3000, "y" * 3000), screenshot=picture((28, 28))))
        said = "".join(part.get("text", "") for part in _parts(talk.sent()[-1]))
        assert f"{'x' * 3000}\n{'y' * 999}\n[cut: 2001 of 6001 characters are not shown]" in said


@NAMES
def test_without_a_screen_there_is_nothing_to_do(name: str) -> None:
    kind = agent_kind(name)
    context = AgentContext(model=NoModel(), tools=(), decode=no_tools, log=Notes())
    with pytest.raises(AgentError, match=f"agent {name} acts on a screen, and the environment has none"):
        kind(context, agent_settings(kind, {}, name))


# --- uitars ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "box", "pixel"),
    [
        ({"version": "1"}, "(500,500)", (960, 540)),
        ({"version": 1}, "(500,500)", (960, 540)),
        ({"version": 1.5}, "(966,546)", (960, 540)),
        ({"version": "1.5"}, "(966,546)", (960, 540)),
        ({"version": "1.5", "max_pixels": 1_003_520}, "(658,364)", (960, 540)),
    ],
)
async def test_uitars_coordinates_follow_the_version(
    options: dict[str, object], box: str, pixel: tuple[int, int]
) -> None:
    async with told("uitars", f"Action: click(start_box='{box}')", **options) as talk:
        assert (await talk.agent.act(BEGIN)).actions == (Click("left", *pixel),)


async def test_a_smaller_picture_than_the_screen_is_mapped_back() -> None:
    async with told("uitars", "Action: click(start_box='(644,364)')") as talk:  # 1280x720 is resized to 1288x728
        assert (await talk.agent.act(Observation(screenshot=picture((1280, 720))))).actions == (
            Click("left", 960, 540),
        )


async def test_uitars_sees_its_own_replies_with_the_tokens_that_servers_leave_out() -> None:
    async with told("uitars", UITARS_CLICK, "Action: wait()") as talk:
        await talk.agent.act(BEGIN)
        await talk.agent.act(LATER)
        said = [each["content"] for each in talk.sent() if each["role"] == "assistant"]
        assert said == ["Thought: there\nAction: click(start_box='<|box_start|>(966,546)<|box_end|>')"]


async def test_nobody_comes_when_uitars_calls() -> None:
    call = "Action: call_user()"
    async with told("uitars", call, call, call, call_user_tolerance=2) as talk:
        actions = [(await talk.agent.act(LATER)).actions for _ in range(3)]
        assert actions == [(Wait(),), (Wait(),), (Fail(),)]


@pytest.mark.parametrize(
    ("given", "is_dart"),
    [
        ({}, False),
        ({"give_up": "dart"}, True),
        ({"model_name": "dart-gui-7b"}, True),
        ({"model_name": "org/DART-GUI"}, True),
        ({"model_name": "ui-tars-standart"}, False),
        ({"model_name": "dart-gui-7b", "give_up": "uitars"}, False),
    ],
)
async def test_darts_models_give_up_at_once_and_in_words(given: dict[str, str], is_dart: bool) -> None:
    said = [
        "Action: call_user()",
        "Action: finished(content='无法完成该任务')",
        "Action: finished(content='The task is infeasible.')",
        "Action: finished(content='This cannot be done here.')",
    ]
    for reply in said:
        async with told("uitars", reply, **given) as talk:
            (action,) = (await talk.agent.act(BEGIN)).actions
            assert isinstance(action, Fail) is is_dart, reply
    async with told("uitars", "Action: finished(content='It is done: 3 files.')", **given) as talk:
        assert (await talk.agent.act(BEGIN)).actions == (Answer("It is done: 3 files."),)
    async with told("uitars", "Action: error_env()", **given) as talk:
        assert (await talk.agent.act(BEGIN)).actions == (Fail(),)


# --- qwen ------------------------------------------------------------------------------------------------


async def test_qwen_is_told_its_grid() -> None:
    async with told("qwen", QWEN_CLICK) as talk:
        await talk.agent.act(BEGIN)
        assert "The screen has 1000x1000 pixels" in talk.sent()[0]["content"]
    async with told("qwen", QWEN_CLICK, coordinates="absolute") as talk:
        await talk.agent.act(BEGIN)
        assert "The screen has 1932x1092 pixels" in talk.sent()[0]["content"]


async def test_qwen_can_count_in_pixels_of_the_resized_image() -> None:
    click = '<tool_call>{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [966, 546]}}'
    async with told("qwen", click, coordinates="absolute") as talk:
        assert (await talk.agent.act(BEGIN)).actions == (Click("left", 960, 540),)


async def test_calls_that_the_server_took_out_of_the_text_are_read_too() -> None:
    use = ToolUse(name="computer_use", arguments='{"action": "type", "text": "hi"}')
    async with told("qwen", Turn(text="Action: Type.", tools=(use,)), DONE["qwen"]) as talk:
        assert (await talk.agent.act(BEGIN)).actions == (Typing("hi"),)
        await talk.agent.act(LATER)
        assert "<tool_call>" in talk.sent()[-2]["content"]


# --- prompt ----------------------------------------------------------------------------------------------


async def test_the_baseline_knows_screen_password_and_task() -> None:
    async with told("prompt", PROMPT_CLICK, client_password="secret") as talk:
        await talk.agent.act(Observation(instruction="Do it.", screenshot=picture(), accessibility_tree="<tree/>"))
        system = talk.sent()[0]["content"]
        assert "1920x1080 pixels" in system
        assert "for sudo, is 'secret'" in system
        assert system.endswith("The task: Do it.")
        assert "<tree/>" in json.dumps(talk.sent()[1])


@pytest.mark.parametrize(
    ("space", "reply"),
    [
        ("computer_13", 'So.\n```json\n{"action_type": "CLICK", "parameters": {"x": 960, "y": 540}}\n```'),
        ("computer_13", 'So.\n```\n[{"action_type": "CLICK", "x": 960, "y": 540}]\n```'),
        ("claude_computer_use", 'So.\n```json\n{"action": "left_click", "coordinate": [960, 540]}\n```'),
        ("pyautogui", PROMPT_CLICK),
    ],
)
async def test_the_baseline_writes_in_the_runs_action_space(space: str, reply: str) -> None:
    async with told("prompt", "```json\n{oh\n```", reply, "WAIT", "```\nFAIL\n```", space=space) as talk:
        assert (await talk.agent.act(BEGIN)).problem
        assert (await talk.agent.act(LATER)).actions == (Click("left", 960, 540),)
        assert [(await talk.agent.act(LATER)).actions for _ in range(2)] == [(Wait(),), (Fail(),)]
        system = talk.sent()[0]["content"]
        assert ("```python" in system, "claude" in system) == (space == "pyautogui", False)
        assert ('"enum"' in system) == (space != "pyautogui")


async def test_the_baseline_is_told_the_size_of_what_it_sees() -> None:
    async with told("prompt", PROMPT_CLICK) as talk:
        await talk.agent.act(Observation(instruction="Do it.", screenshot=picture((960, 540))))
        assert "960x540 pixels" in talk.sent()[0]["content"]


async def test_without_a_picture_the_size_is_that_of_the_runs_settings() -> None:
    async with told("prompt", PROMPT_CLICK, shown=(960, 540)) as talk:
        await talk.agent.act(Observation(instruction="Do it.", accessibility_tree="tag"))
        assert "960x540 pixels" in talk.sent()[0]["content"]


def _parts(message: dict[str, object]) -> list[dict[str, object]]:
    content = message["content"]
    return content if isinstance(content, list) else []
