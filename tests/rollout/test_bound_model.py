"""How an attempt asks its model: with a seed of its own, which is kept, and whatever the agent says beyond that."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deskroll.actions import Answer
from deskroll.agents.base import AgentContext
from deskroll.errors import FailureKind
from deskroll.models.base import ANY_CALL, ModelCall
from deskroll.models.messages import Message
from deskroll.models.plugin import ModelPlugin
from deskroll.rollout.bound_model import over, seed_of
from deskroll.types import Completion, Decision, EpisodeKey, Observation, Sampling
from tests.rollout.conftest import ANSWER, CALCULATE, Runs, questions, script
from tests.rollout.parts import AnsweringAgent

KEYS = st.builds(EpisodeKey, phase=st.text(), round=st.integers(0, 9), task=st.text(), sample=st.integers(0, 99))


class CoolAgent(AnsweringAgent):
    """Brings a sampling of its own."""

    def __init__(self, context: AgentContext, settings: object) -> None:
        self._model = context.model

    async def act(self, observation: Observation) -> Decision:
        call = ModelCall(sampling=Sampling(temperature=0.0))
        completion = await self._model.complete([Message.user("hello").sent], call=call)
        return Decision(actions=(Answer(text="42"),), completion=completion)


@pytest.mark.parametrize("backend", ["inline", "process"])
async def test_each_sample_has_a_seed_of_its_own_which_is_kept_with_every_step(runs: Runs, backend: str) -> None:
    say, model = script(CALCULATE, ANSWER), {"seed": 11}
    for name in ("one", "two"):
        await runs.run(say, questions(2), group_size=3, model=model, run_id=name, backend=backend, workers=2)
    seeds = [_seeds(runs, name) for name in ("one", "two")]
    assert seeds[0] == seeds[1], "the same sample is asked with the same seed"
    assert all(len(set(each)) == 1 for each in seeds[0].values()), "every turn of it"
    assert len({each[0] for each in seeds[0].values()}) == 6
    assert None not in {each[0] for each in seeds[0].values()}


def _seeds(runs: Runs, name: str) -> dict[tuple[str, int], list[int | None]]:
    run = runs.read(name)
    return {
        (each.key.task, each.key.sample): [
            step.completion.seed for step in run.attempt(each.key, each.attempt).steps() if step.completion is not None
        ]
        for each in run.outcomes()
    }


async def test_without_a_seed_none_is_sent(runs: Runs) -> None:
    await runs.run(script(ANSWER), questions(1))
    assert _seeds(runs, "run") == {("task-0", 0): [None]}


async def test_an_agent_may_sample_as_it_likes(runs: Runs) -> None:
    (episode,) = await runs.run(script({"text": "hi"}), questions(1), agent=f"{__name__}:CoolAgent", model={"seed": 4})
    (step,) = runs.read().attempt(episode.key, 1).steps()
    assert step.completion is not None
    assert step.completion.seed is None, "a call of its own has only what it says"


class VagueModel(ModelPlugin):
    """Knows no tokens, and heeds no setting."""

    async def complete(
        self, messages: Sequence[bytes], tools: bytes | None = None, *, call: ModelCall = ANY_CALL
    ) -> Completion:
        return Completion(text="42", model="vague")


@pytest.mark.parametrize(("exact", "failed"), [(True, FailureKind.INEXACT_ANSWER), (False, None)])
async def test_no_kind_of_model_gets_past_exact(runs: Runs, exact: bool, failed: FailureKind | None) -> None:
    model = {"kind": f"{__name__}:VagueModel", "exact": exact}
    (episode,) = await runs.run(script(ANSWER), questions(1), model=model, retries={"backoff": 0, "model": 0})
    assert (episode.failure and episode.failure.kind) == failed
    assert episode.points == (None if exact else 1.0)


def test_an_orders_sampling_counts_over_the_settings() -> None:
    settings = Sampling(temperature=0.5, seed=3, logprobs=True)
    assert over(settings, None) == settings
    given = Sampling(temperature=0.0, top_k=5)
    assert over(settings, given) == Sampling(temperature=0.0, top_k=5, seed=3, logprobs=True)


@given(KEYS, KEYS, st.integers(-(2**63), 2**64))
def test_seeds_follow_from_the_key_and_the_runs_seed(one: EpisodeKey, other: EpisodeKey, seed: int) -> None:
    assert 0 <= seed_of(one, seed) < 2**31
    assert (seed_of(one, seed) == seed_of(other, seed)) == (one == other)
    assert seed_of(one, seed) != seed_of(one, seed + 1)
