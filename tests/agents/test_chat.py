"""The chat agent against a strict server: calls in order, every one answered, what cannot be used is mended."""

from __future__ import annotations

import json

import pytest

from deskroll.actions import Answer, ToolCall
from deskroll.agents import AgentContext, agent_kind, agent_settings
from deskroll.agents.chat import ChatAgent, ChatSettings
from deskroll.errors import ConfigError, InputError
from deskroll.models.messages import WITHHELD
from deskroll.models.scripted import ToolUse, Turn
from deskroll.models.scripted.requests import read_request
from deskroll.types import Observation
from tests.agents.talk import BEGIN, BROKEN, TOOLS, Notes, decode, png, talking, tap, use
from tests.models.servers import canned, client, http

MIXED = Turn(tools=(use("tap", 1), ToolUse(name="tap", arguments=BROKEN), use("tap", 3)))


def results(*texts: str, screen: int | None = None) -> Observation:
    return Observation(results=texts, screenshot=None if screen is None else png(screen))


# --- calls -----------------------------------------------------------------------------------------------


async def test_the_task_is_told_and_the_answer_taken() -> None:
    async with talking(" 42 \n") as talk:
        decision = await talk.agent.act(BEGIN)
        assert decision.actions == (Answer(text="42"),)
        assert (decision.thought, decision.problem) == (" 42 \n", "")
        assert decision.completion is not None
        assert decision.sent is not None
        assert decision.sent.messages == 2
        system, user = talk.sent()
        assert (system["role"], user) == ("system", {"role": "user", "content": "Tap it."})
        offered = json.loads(talk.server.requests[0])["tools"]
        assert [each["function"]["name"] for each in offered] == ["tap", "pair"]


async def test_calls_are_made_in_order_all_of_them_and_each_gets_its_own_results() -> None:
    calls = Turn(text="now", tools=(use("tap", 1), use("pair", 2), use("tap", 3)))
    async with talking(calls, "done") as talk:
        decision = await talk.agent.act(BEGIN)
        taps = [action for action in decision.actions if isinstance(action, ToolCall)]
        assert [action.arguments["n"] for action in taps] == [1, 2, 2, 3]
        await talk.agent.act(results("one", "two", "", "three"))
        *_, asked, first, second, third = talk.sent()
        ids = [call["id"] for call in asked["tool_calls"]]
        assert [each["tool_call_id"] for each in (first, second, third)] == ids
        assert [each["content"] for each in (first, second, third)] == ["one", "two", "three"]


async def test_a_call_without_words_is_done_and_one_without_result_was_not() -> None:
    async with talking(tap(1, 2), "done") as talk:
        await talk.agent.act(BEGIN)
        await talk.agent.act(results(""))
        assert [each["content"] for each in talk.sent()[-2:]] == ["done", "not performed: the episode was over"]


async def test_what_is_seen_follows_the_results_in_a_message_of_its_own() -> None:
    async with talking(tap(1, 2), "done") as talk:
        await talk.agent.act(BEGIN)
        seen = Observation(results=("a", "b"), screenshot=png(7), accessibility_tree="<tree/>", terminal="$ ls")
        await talk.agent.act(seen)
        assert [each["role"] for each in talk.sent()[-3:]] == ["tool", "tool", "user"]
        text, tree, image = talk.sent()[-1]["content"]
        assert text["text"] == "Terminal:\n$ ls\n\nThe screen now:"
        assert tree["text"] == "Accessibility tree:\n<tree/>"
        assert image["image_url"]["url"].startswith("data:image/png;base64,")


# --- replies that cannot be used -------------------------------------------------------------------------


async def test_of_several_calls_with_a_malformed_one_none_is_made_and_each_is_answered() -> None:
    async with talking(MIXED, tap(5), "done") as talk:
        decision = await talk.agent.act(BEGIN)
        assert decision.actions == ()
        assert decision.problem == "the arguments are no JSON"
        mended = await talk.agent.act(results(decision.problem))
        assert [action.arguments for action in mended.actions if isinstance(action, ToolCall)] == [{"n": 5}]
        answers = [each["content"] for each in talk.sent()[-3:]]
        assert answers[1] == "error: the arguments are no JSON"
        assert answers[0] == answers[2]
        assert answers[0].startswith("not performed: another call in the same message was malformed")
        await talk.agent.act(results("fine"))
        assert talk.sent()[-1]["content"] == "fine"


WRONG = {
    "malformed arguments": (
        Turn(tools=(ToolUse(name="tap", arguments=BROKEN),)),
        "tool",
        "error: the arguments are no",
    ),
    "unknown tool": (Turn(tools=(use("dance", 1),)), "tool", "error: there is no tool 'dance'; tools: tap, pair"),
    "nothing at all": (Turn(text=""), "user", "error: your reply was empty; call a tool, or give the final answer"),
    "white space": (Turn(text=" \n\t"), "user", "error: your reply was empty"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_the_model_is_told_what_was_wrong_and_may_mend_it(name: str) -> None:
    turn, role, words = WRONG[name]
    async with talking(turn, turn, "42", max_retries=2) as talk:
        for _ in range(2):
            decision = await talk.agent.act(BEGIN)
            assert decision.actions == ()
            assert decision.problem
        assert (await talk.agent.act(BEGIN)).actions == (Answer(text="42"),)
        told = talk.sent()[-1]
        assert told["role"] == role
        assert told["content"].startswith(words)


@pytest.mark.parametrize("name", WRONG)
async def test_who_never_mends_it_has_failed(name: str) -> None:
    async with talking(WRONG[name][0], max_retries=2) as talk:
        for _ in range(2):
            await talk.agent.act(BEGIN)
        last = await talk.agent.act(BEGIN)
        assert last.gave_up.startswith("3 replies in a row could not be used; the last one: ")
        assert last.completion is not None, "what it said last is kept, too"
        assert talk.server.stats.requests == 3


async def test_no_retries_means_that_the_first_one_ends_it() -> None:
    async with talking(MIXED, max_retries=0) as talk:
        assert (await talk.agent.act(BEGIN)).gave_up.startswith("1 replies in a row")


async def test_a_good_reply_in_between_starts_the_count_anew() -> None:
    empty = Turn(text="")
    async with talking(empty, tap(1), empty, tap(2), empty, "42", max_retries=1) as talk:
        kinds = [len((await talk.agent.act(results("fine"))).actions) for _ in range(6)]
        assert kinds == [0, 1, 0, 1, 0, 1]


def reply(text: str | None, *calls: dict[str, object], finish: str = "stop") -> bytes:
    message = {"role": "assistant", "content": text, **({"tool_calls": list(calls)} if calls else {})}
    return http({"choices": [{"index": 0, "message": message, "finish_reason": finish}]})


def call(call_id: str, name: str, arguments: str = '{"n": 1}') -> dict[str, object]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


async def talk_to(*answers: bytes, acts: int = 2) -> tuple[list[int], list[bytes]]:
    """How many actions came of each reply, and the requests, each of which a strict server takes."""
    async with canned(*answers) as server, client(server.url, retries=0) as model:
        agent = ChatAgent(AgentContext(model=model, tools=TOOLS, decode=decode, log=Notes()), ChatSettings())
        counts = [len((await agent.act(results("fine", "fine"))).actions) for _ in range(acts)]
        for body in server.bodies:
            read_request(body)
        return counts, server.bodies


async def test_a_reply_that_was_cut_off_is_no_answer() -> None:
    counts, bodies = await talk_to(reply("The answer is 4", finish="length"), reply("42"))
    assert counts == [0, 1]
    assert "your reply was cut off at the limit of tokens; be shorter" in bodies[1].decode()


async def test_a_call_that_was_cut_off_is_a_malformed_one() -> None:
    counts, _ = await talk_to(reply(None, call("c1", "tap", BROKEN), finish="length"), reply("42"))
    assert counts == [0, 1]


@pytest.mark.parametrize(
    ("calls", "made"),
    [
        ([call("same", "tap"), call("same", "tap")], 2),
        ([call("same", "tap"), call("same", "tap", BROKEN), call("same_", "tap")], 0),
        ([call("c1", "tap"), call("c2", "")], 0),
        ([call("", "tap"), call("", "tap")], 2),
    ],
    ids=["two of one id", "three, one of them malformed", "no name", "no ids"],
)
async def test_odd_calls_do_not_spoil_the_conversation(calls: list[dict[str, object]], made: int) -> None:
    counts, _ = await talk_to(reply(None, *calls), reply("42"))
    assert counts == [made, 1]


# --- limits ----------------------------------------------------------------------------------------------


async def test_older_images_are_withheld() -> None:
    async with talking(tap(1), tap(2), tap(3), tap(4), "done", max_images=2) as talk:
        await talk.agent.act(Observation(instruction="Tap it.", screenshot=png(0)))
        decisions = [await talk.agent.act(results("fine", screen=n)) for n in range(1, 4)]
        shown = [
            [part["type"] for part in each["content"]] for each in talk.sent() if isinstance(each["content"], list)
        ]
        assert shown == [["text", "text"], ["text", "text"], ["text", "image_url"], ["text", "image_url"]]
        assert talk.server.requests[-1].count(WITHHELD.encode()) == 2
        assert [each.sent.withheld for each in decisions if each.sent] == [(), (1,), (1, 4)]
        assert set(talk.notes.images.values()) == {png(n) for n in range(4)}, "what is withheld is kept all the same"


@pytest.mark.parametrize("where", ["tree", "terminal", "result"])
async def test_a_long_text_is_cut_and_says_so(where: str) -> None:
    long = "abcd" * 1000
    seen = {
        "tree": Observation(results=("",), accessibility_tree=long),
        "terminal": Observation(results=("",), terminal=long),
        "result": Observation(results=(long,)),
    }[where]
    async with talking(tap(1), "done", max_tree_tokens=100) as talk:
        await talk.agent.act(BEGIN)
        await talk.agent.act(seen)
        said = talk.sent()[-1]["content"]
        said = said[0]["text"] if isinstance(said, list) else said
        assert said.endswith("abcd\n[cut: 3600 of 4000 characters are not shown]")
        assert said.count("abcd") == 100


async def test_a_text_of_just_the_limit_is_left_alone() -> None:
    async with talking("done", max_tree_tokens=100) as talk:
        await talk.agent.act(Observation(instruction="x", accessibility_tree="a" * 400))
        assert [part["text"] for part in talk.sent()[-1]["content"]] == ["x", "Accessibility tree:\n" + "a" * 400]


async def test_older_trees_are_withheld() -> None:
    """A long episode would else send every tree that it ever saw, and outgrow any model."""
    async with talking(tap(1), tap(2), tap(3), "done", max_images=1) as talk:
        await talk.agent.act(Observation(instruction="Tap it.", accessibility_tree="<tree-0/>"))
        for n in range(1, 4):
            await talk.agent.act(Observation(results=("fine",), accessibility_tree=f"<tree-{n}/>"))
        assert [b"<tree-%d/>" % n in talk.server.requests[-1] for n in range(4)] == [False, False, False, True]
        assert b"Tap it." in talk.server.requests[-1]
        assert all(b"<tree-%d/>" % n in b"".join(talk.notes.stored) for n in range(4)), "they are kept all the same"


# --- by name ---------------------------------------------------------------------------------------------


def test_agents_are_chosen_by_name_and_their_options_checked() -> None:
    kind = agent_kind("chat")
    assert kind is ChatAgent
    assert agent_settings(kind, {"max_images": 5}, "chat") == ChatSettings(max_images=5)
    with pytest.raises(ConfigError, match=r"agent_options \(agent chat\): max_images: .*greater than or equal to 1"):
        agent_settings(kind, {"max_images": 0}, "chat")


@pytest.mark.parametrize(
    ("path", "lacks"),
    [
        ("deskroll.envs.math:MathEnv", "it is not made from deskroll.agents.Agent; see docs/plugins.md"),
        ("deskroll.errors:plain", "it is not made from"),
        ("tests.agents.talk:BEGIN", "it is not made from"),
        ("deskroll.agents:Agent", "it has no act; see docs/plugins.md"),
    ],
)
def test_what_is_no_agent_is_refused(path: str, lacks: str) -> None:
    with pytest.raises(InputError, match=f"is not a valid agent: {lacks}"):
        agent_kind(path)
