"""Environments made of tools: calls in order, one result each, failures told, the answer judged."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from deskroll.actions import Answer, Click, Done, Fail, ToolCall
from deskroll.envs import Ending, env_kind, env_settings
from deskroll.envs.tooled import LONGEST_RESULT, ToolEnv, ToolFunction, ToolSettings
from deskroll.errors import ActionError, ConfigError, InputError, ToolError
from deskroll.types import Record, StopReason, Task, ToolRequest

TASK = Task(id="a", instruction="What is it?", answer="Forty Two")


class Said(Record, frozen=True):
    """What to say."""

    words: str
    times: int = 1


class Talker(ToolEnv):
    """Notes what it is told; fails when it is told so."""

    def __init__(self, task: Task = TASK, settings: ToolSettings | None = None) -> None:
        self.heard: list[str] = []
        super().__init__(task, settings or ToolSettings())

    def functions(self) -> Mapping[str, ToolFunction]:
        async def say(said: Said) -> str:
            self.heard.append(said.words)
            if said.words == "fail":
                raise ToolError("it cannot be said\x1b[2J " + "x" * 10_000)
            if said.words == "stumble":
                raise IndexError("the tool's own bug")
            return said.words * said.times

        return {"say": ToolFunction("say", "Say something.", Said, say)}


def say(words: str, **more: object) -> ToolCall:
    return ToolCall(name="say", arguments={"words": words, **more}, call_id="c")


async def test_calls_run_in_order_and_each_has_a_result() -> None:
    env = Talker()
    assert (await env.reset()).instruction == "What is it?"
    moment = await env.step([say("one"), say("two", times=2), say("three")])
    assert env.heard == ["one", "two", "three"]
    assert moment.observation.results == ("one", "twotwo", "three")
    assert (moment.stop, moment.answer) == (None, None)


async def test_what_a_tool_cannot_do_is_a_result_and_not_the_end() -> None:
    moment = await Talker().step([say("fail"), say("on we go")])
    failed, went_on = moment.observation.results
    assert failed.startswith("error: ToolError: it cannot be said [2J xxx")
    assert "\x1b" not in failed
    assert len(failed) < 600
    assert went_on == "on we go"


async def test_a_bug_of_a_tool_is_no_result() -> None:
    with pytest.raises(IndexError, match="the tool's own bug"):
        await Talker().step([say("stumble"), say("on we go")])


async def test_what_a_tool_says_is_bounded_and_printable() -> None:
    (long,) = (await Talker().step([say("ab\x07\n\t", times=LONGEST_RESULT)])).observation.results
    assert len(long) <= LONGEST_RESULT + 4
    assert long.startswith("ab \n\tab")


@pytest.mark.parametrize(
    ("last", "stop", "answer"),
    [(Answer(text="42"), StopReason.ANSWER, "42"), (Done(), StopReason.DONE, None), (Fail(), StopReason.FAIL, None)],
)
async def test_what_ends_it_ends_it_there(last: Answer | Done | Fail, stop: StopReason, answer: str | None) -> None:
    env = Talker()
    moment = await env.step([say("before"), last, say("after")])
    assert (moment.stop, moment.answer, moment.observation.results) == (stop, answer, ("before",))
    assert env.heard == ["before"]


async def test_a_computer_action_needs_a_desktop() -> None:
    moment = await Talker().step([Click(x=1, y=2), say("well")])
    assert moment.observation.results == ("error: CLICK needs a desktop, and there is none", "well")


def test_calls_are_decoded_and_checked() -> None:
    env = Talker()
    request = ToolRequest(id="c7", name="say", arguments='{"words": "hi", "unknown": 1}')
    assert env.decode(request) == (ToolCall(name="say", arguments={"words": "hi"}, call_id="c7"),)
    with pytest.raises(ActionError, match=r"there is no tool 'shout\?'; tools: say"):
        env.decode(ToolRequest(id="c", name="shout?", arguments="{}"))
    with pytest.raises(ActionError, match=r"say: the arguments do not fit: .*words`; see the tool's parameters"):
        env.decode(ToolRequest(id="c", name="say", arguments='{"words": 1}'))
    with pytest.raises(ActionError, match="there is no tool 'x'; tools: none"):
        ToolEnv(TASK, ToolSettings()).decode(ToolRequest(id="c", name="x", arguments=""))


@pytest.mark.parametrize(
    ("metric", "answer", "value"),
    [("exact_match", " Forty Two ", 1.0), ("exact_match", "it is forty two", 0.0), ("exact_match", None, 0.0),
     ("contains_answer", "it is FORTY TWO!", 1.0)],
)  # fmt: skip
async def test_the_answer_is_judged_by_the_runs_metric(metric: str, answer: str | None, value: float) -> None:
    env = Talker(settings=ToolSettings(evaluation_metric=metric))
    assert (await env.score(Ending(stop=StopReason.ANSWER, answer=answer))).value == value


async def test_a_task_without_a_reference_is_not_scored() -> None:
    score = await Talker(Task(id="a", instruction="q")).score(Ending(stop=StopReason.ANSWER, answer="42"))
    assert (score.value, score.reason) == (None, "the task has no reference answer")


def test_kinds_by_name_and_by_path() -> None:
    kind = env_kind("tests.envs.test_tooled:Talker")
    assert kind is Talker
    assert kind.desktop_spec(TASK, ToolSettings()) is None
    settings = env_settings(kind, {"evaluation_metric": "contains_answer"}, "talker")
    assert settings == ToolSettings(evaluation_metric="contains_answer")
    with pytest.raises(ConfigError, match=r"env_options \(env talker\): evaluation_metric: allowed: exact_match"):
        env_settings(kind, {"evaluation_metric": "f1"}, "talker")


@pytest.mark.parametrize(
    "path", ["deskroll.envs.math:evaluate", "deskroll.envs.base:TurnResult", "tests.envs.test_tooled:TASK"]
)
def test_what_is_no_environment_is_refused(path: str) -> None:
    with pytest.raises(InputError, match="is not a valid env"):
        env_kind(path)
