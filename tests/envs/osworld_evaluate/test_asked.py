"""A desktop task that a model judges: what it is told, what counts, and what is refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from deskroll.desktops.base import DesktopSpec
from deskroll.desktops.guest.client import GuestDesktop
from deskroll.desktops.providers.sim.provider import SimProvider
from deskroll.desktops.providers.sim.settings import SimSettings
from deskroll.envs import Ending, EnvContext
from deskroll.envs.osworld.env import OSWorldEnv
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.errors import EvaluatorError, InputError
from deskroll.models.base import ANY_CALL, ModelCall
from deskroll.tasks import parse_task
from deskroll.types import Completion, StopReason

SETTINGS = OSWorldSettings(screen_width=320, screen_height=240, sleep_after_execution=0.0)


class Saying:
    """A model that says the same to all, and keeps what it was asked."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked: list[str] = []

    async def complete(
        self, messages: Sequence[bytes], tools: bytes | None = None, *, call: ModelCall = ANY_CALL
    ) -> Completion:
        self.asked = [json.loads(each)["content"] for each in messages]
        return Completion(text=self.text)


@pytest_asyncio.fixture
async def desktop() -> AsyncIterator[GuestDesktop]:
    """A simulated one that does not say so."""
    async with SimProvider(SimSettings.model_validate({"boot": "0", "step": "0"})) as provider:
        address = await provider.boot(DesktopSpec(width=320, height=240))
        async with GuestDesktop(msgspec.structs.replace(address, simulated=False)) as guest:
            yield guest


def made(desktop: GuestDesktop, judge: Saying | None, **evaluator: Any) -> OSWorldEnv:
    raw = {"id": "t", "instruction": "Open the clock", "evaluator": {"func": "llm_judgement", **evaluator}}
    return OSWorldEnv(parse_task(raw, "here"), SETTINGS, EnvContext(desktop=desktop, judge=judge))


@pytest.mark.parametrize(("verdict", "value"), [("correct", 1.0), ("incorrect", 0.0)])
async def test_the_model_is_told_what_shows_and_decides(desktop: GuestDesktop, verdict: str, value: float) -> None:
    await desktop.launch(["gnome-clocks"])
    judge = Saying(json.dumps({"verdict": verdict, "reason": "it shows"}))
    env = made(desktop, judge, options={"expected": "A clock is open"})
    score = await env.score(Ending(stop=StopReason.ANSWER, answer="I have opened it"))
    assert (score.value, score.reason) == (value, f"judged {verdict}: it shows")
    said = judge.asked[1]
    assert "Open the clock" in said
    assert "A clock is open" in said
    assert "I have opened it" in said
    assert "gnome-clocks" in said


async def test_giving_up_scores_nothing_without_asking(desktop: GuestDesktop) -> None:
    judge = Saying("")
    score = await made(desktop, judge).score(Ending(stop=StopReason.FAIL))
    assert score.value == 0.0
    assert judge.asked == []


async def test_without_a_model_it_is_not_scored(desktop: GuestDesktop) -> None:
    with pytest.raises(EvaluatorError, match="llm_judgement needs a model that judges"):
        await made(desktop, None).score(Ending(stop=StopReason.DONE))


@pytest.mark.parametrize(
    ("evaluator", "words"),
    [
        ({"result": {"type": "vm_file", "path": "x"}}, "takes neither result nor expected"),
        ({"options": {"rubric": "be kind"}}, "allowed: expected, a text"),
        ({"options": {"expected": 3}}, "allowed: expected, a text"),
    ],
)
def test_what_it_cannot_be_told(evaluator: dict[str, Any], words: str) -> None:
    raw = {"id": "t", "instruction": "do", "evaluator": {"func": "llm_judgement", **evaluator}}
    with pytest.raises(InputError, match=words):
        OSWorldEnv.check_task(parse_task(raw, "here"))
