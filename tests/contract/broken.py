"""Plug-ins that break their contract, each in one way, with the check that must find it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ConfigDict

from deskroll.actions import Action, Click
from deskroll.agents.noop import NoopAgent
from deskroll.agents.prompt import PromptAgent
from deskroll.config import Settings
from deskroll.desktops.base import Address, DesktopSpec, StepResult
from deskroll.desktops.notes import Note
from deskroll.desktops.providers.sim.provider import SimProvider
from deskroll.envs import Ending, TurnResult
from deskroll.envs.math import MathEnv
from deskroll.envs.osworld.observation import Shown
from deskroll.envs.osworld.observations import Screenshot, SetOfMarks
from deskroll.envs.osworld.scaling import Scale
from deskroll.envs.osworld.spaces import Computer13
from deskroll.errors import AgentError, DeskrollError
from deskroll.models.base import ANY_CALL, ModelCall
from deskroll.models.plugin import ModelPlugin
from deskroll.rollout.backends.inline import InlineBackend
from deskroll.rollout.orders import Order
from deskroll.train.base import StepReport, TrainBatch
from deskroll.train.scripted import ScriptedTrainer
from deskroll.types import Completion, Decision, Episode, EpisodeKey, Observation, Score, Tool, ToolRequest


class LoosenedSettings(Settings):
    """Can be changed."""

    model_config = ConfigDict(frozen=False)
    steps: int = 1


class Loosened(NoopAgent):
    """Its settings are not frozen."""

    Settings: ClassVar[type[Settings]] = LoosenedSettings


class UnknownCode(NoopAgent):
    """Names an option that it does not have."""

    code_options: ClassVar[tuple[str, ...]] = ("program",)


class Immortal(SimProvider):
    """Its machines are not ended."""

    async def end_machine(self, note: Note) -> None:
        pass


class Leaking(SimProvider):
    """A boot that was cancelled leaves its machine."""

    async def start_machine(self, note: Note, spec: DesktopSpec, token: str) -> Address:
        try:
            return await super().start_machine(note, spec, token)
        except asyncio.CancelledError:
            self.world.desktops[note.id].keeper = Leaking()
            raise


class Dirty(SimProvider):
    """A revert keeps what was there."""

    async def revert_machine(self, note: Note, spec: DesktopSpec) -> Address:
        return self._address(self.world.desktops[note.id])


class Boundless(SimProvider):
    """Takes any spec."""

    def check_spec(self, spec: DesktopSpec) -> None:
        pass


class Hasty(MathEnv):
    """Every attempt is right."""

    async def score(self, ending: Ending) -> Score:
        return Score(value=1.0, reason="surely")


class Silent(MathEnv):
    """Scores without a reason."""

    async def score(self, ending: Ending) -> Score:
        return Score(value=0.0, reason="")


class Crashing(MathEnv):
    """A call that cannot be read is a bug of its own."""

    def decode(self, call: ToolRequest) -> Sequence[Action]:
        raise KeyError(call.name)


class Endless(MathEnv):
    """Nothing ends an episode."""

    async def step(self, actions: Sequence[Action]) -> TurnResult:
        return TurnResult(observation=Observation(results=("",) * len(actions)))


class Clinging(MathEnv):
    """Cannot be closed before its reset."""

    ready = False

    async def reset(self) -> Observation:
        self.ready = True
        return await super().reset()

    async def close(self) -> None:
        if not self.ready:
            raise AttributeError("it was never reset")


class Swallowing(PromptAgent):
    """Takes its model's failure for its own."""

    async def act(self, observation: Observation) -> Decision:
        try:
            return await super().act(observation)
        except DeskrollError as error:
            raise AgentError(str(error)) from error


class Fragile(PromptAgent):
    """What it cannot read is a plain exception."""

    async def act(self, observation: Observation) -> Decision:
        completion = await self.context.model.complete([])
        return Decision(actions=(Click(x=int(completion.text), y=0),), completion=completion)


class Gossip(NoopAgent):
    """All attempts share one conversation."""

    heard: ClassVar[list[bytes]] = []

    async def act(self, observation: Observation) -> Decision:
        self.heard.append(observation.instruction.encode())
        for each in self.heard:
            self.context.log.message(each)
        return await super().act(observation)


class Stubborn(ModelPlugin):
    """Knows no deadline, and its failures are plain exceptions."""

    async def complete(
        self, messages: Sequence[bytes], tools: bytes | None = None, *, call: ModelCall = ANY_CALL
    ) -> Completion:
        await asyncio.sleep(0)
        if self.settings.base_url.endswith(":9/v1"):
            raise ConnectionError("nobody is there")
        return Completion(text="word")


class Busy(Stubborn):
    """Serves something else than settings."""

    @classmethod
    @asynccontextmanager
    async def serve(cls, settings: Any, name: str) -> AsyncIterator[Any]:
        yield {"base_url": "x"}


class Forgetful(InlineBackend):
    """Loses attempts."""

    async def run(self, order: Order) -> Episode | None:
        await super().run(order)
        return None


class Deaf(InlineBackend):
    """Stops nobody."""

    def stop(self, key: EpisodeKey, attempt: int, error: DeskrollError | None, visit: int | None = None) -> bool:
        super().stop(key, attempt, None, visit)
        return False


class Trusting(Computer13):
    """Believes what stands in the arguments."""

    def actions(self, arguments: Mapping[str, Any], width: int, height: int, marks: Any) -> Sequence[Action]:
        return (Click(x=arguments["parameters"]["x"], y=0),)


class Renaming(Computer13):
    """Its tool has another name where elements are marked."""

    marked_tool: ClassVar[Tool | None] = Tool(name="other", description="Other.", parameters={"type": "object"})


class Blind(Screenshot):
    """Shows nothing."""

    def show(self, seen: StepResult, scale: Scale) -> Shown:
        return Shown()


class Astray(SetOfMarks):
    """Its marks are off the screen, and it relies on the tree."""

    def show(self, seen: StepResult, scale: Scale) -> Shown:
        assert seen.tree is not None
        return Shown(screenshot=seen.screenshot, marks=((9999, 9999),))


class Restless(ScriptedTrainer):
    """Learns from nothing."""

    def step(self, batch: TrainBatch) -> StepReport:
        self._number += 1
        return StepReport()


class Careless(ScriptedTrainer):
    """Its tensors have other names."""

    def save(self, folder: Path) -> None:
        super().save(folder)
        for file in folder.glob("model*.safetensors"):
            file.write_bytes(file.read_bytes().replace(b'"norm"', b'"nrom"'))


class Amnesiac(ScriptedTrainer):
    """Does not know what it had learned."""

    def save_state(self, folder: Path) -> None:
        pass

    def open(self, checkpoint: Path, state: Path | None) -> None:
        super().open(checkpoint, None)
        self._number = 7


FOUND_BY = {
    "agent": {
        Loosened: "test_its_options_are_read_and_cannot_be_changed",
        UnknownCode: "test_options_that_name_code_are_options",
        Swallowing: "test_a_failure_of_its_model_is_not_its_own",
        Fragile: "test_whatever_its_model_says_it_decides_or_fails_as_an_agent",
        Gossip: "test_attempts_do_not_see_each_other",
    },
    "provider": {
        Immortal: "test_a_stopped_desktop_is_gone_and_stopping_it_again_is_no_error",
        Leaking: "test_a_boot_that_is_cancelled_leaves_nothing",
        Dirty: "test_a_desktop_that_is_reverted_is_clean_and_one_that_cannot_be_says_so",
        Boundless: "test_a_spec_that_can_never_be_is_refused_before_anything_starts",
    },
    "env": {
        Hasty: "test_every_attempt_has_a_score_or_a_reason_why_not",
        Silent: "test_every_attempt_has_a_score_or_a_reason_why_not",
        Crashing: "test_a_call_that_is_no_call_is_told_to_the_model",
        Endless: "test_what_ends_an_episode_ends_it",
        Clinging: "test_it_can_be_closed_whatever_came_before",
    },
    "model": {
        Stubborn: "test_a_server_that_is_not_there_is_the_models_failure",
        Busy: "test_it_answers",
    },
    "backend": {
        Forgetful: "test_each_attempt_ends_with_its_episode_and_its_files",
        Deaf: "test_an_attempt_that_is_stopped_ends_as_it_was_told",
    },
    "action_space": {
        Trusting: "test_whatever_stands_in_the_arguments_is_actions_or_an_error",
        Renaming: "test_a_model_is_told_how_to_act",
    },
    "observation": {
        Blind: "test_something_is_shown",
        Astray: "test_a_tree_that_is_missing_or_broken_is_no_crash",
    },
    "trainer": {
        Restless: "test_a_batch_without_signal_changes_no_weight",
        Careless: "test_what_it_saves_a_server_takes_in_place_of_what_it_began_with",
        Amnesiac: "test_it_goes_on_from_what_it_saved_as_if_it_had_not_stopped",
    },
}
"""By kind: each plug-in, and the check that must fail for it."""
