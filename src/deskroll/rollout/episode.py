"""The one loop: reset, act, step, score. Evaluation, service and training all run it.

Guarantees: an attempt that was begun ends with one `Episode`, whose files are durable before it is returned. Whatever
failed carries its class; what the agent did wrong is scored 0, what anything else did wrong is not scored at all.
Only a `StoreError` rises: an attempt that cannot be written down did not happen.
"""

from __future__ import annotations

import asyncio

from deskroll.agents import Agent
from deskroll.desktops.base import Desktop
from deskroll.envs import Ending, Env, Moment
from deskroll.errors import DeskrollError, EvaluatorError, FailureClass, SetupError, StoreError, boundary
from deskroll.rollout.deadline import within
from deskroll.rollout.kit import Kit
from deskroll.rollout.live import Live
from deskroll.rollout.notebook import Notebook
from deskroll.types import Decision, Episode, Observation, Phase, StopReason


async def run_episode(live: Live, kit: Kit) -> Episode:
    """Run one attempt to its end."""
    notes = Notebook(live, kit)
    try:
        try:
            async with kit.desktop(live) as desktop:
                await _attempt(live, kit, notes, desktop)
        except asyncio.CancelledError:
            if not live.cancelled:  # nobody stopped this attempt: the process itself is ending
                raise
            _uncancel()
            notes.stopped(live.stopped_by)
        except StoreError:
            raise
        except DeskrollError as error:
            notes.failed(error)
        live.enter(Phase.STORE)
        return await notes.seal()
    finally:
        await notes.close()


async def _attempt(live: Live, kit: Kit, notes: Notebook, desktop: Desktop | None) -> None:
    task, limits = live.order.task, kit.spec.limits
    live.enter(Phase.SETUP)
    with boundary(FailureClass.SETUP, f"task {task.id!r}"):
        env = kit.env(task, desktop)
    try:
        async with within(limits.setup_timeout, SetupError, f"the set-up of task {task.id!r}"):
            with boundary(FailureClass.SETUP, f"task {task.id!r}"):
                observation = await env.reset()
        with boundary(FailureClass.AGENT, f"agent {kit.spec.agent}"):
            agent = kit.agent(env, notes.writer)
        ending = await _turns(live, env, agent, observation, notes)
        live.enter(Phase.SCORE)
        async with within(limits.score_timeout, EvaluatorError, f"the evaluation of task {task.id!r}"):
            with boundary(FailureClass.EVALUATOR, f"task {task.id!r}"):
                notes.scored(ending, await env.score(ending))
    finally:
        await env.close()


async def _turns(live: Live, env: Env, agent: Agent, observation: Observation, notes: Notebook) -> Ending:
    """Ask, act, look, until the agent or a limit ends it."""
    try:
        async with asyncio.timeout(notes.limits.max_time):
            while (stop := notes.budget.reached()) is None:
                live.enter(Phase.MODEL)
                with boundary(FailureClass.AGENT, "the agent"):
                    decision = await agent.act(observation)
                live.enter(Phase.ACT)
                moment = await _step(env, decision)
                live.enter(Phase.STORE)
                notes.step(decision, moment)
                if moment.stop is not None:
                    return Ending(stop=moment.stop, answer=moment.answer)
                observation = moment.observation
    except TimeoutError:
        stop = StopReason.MAX_TIME
    return Ending(stop=stop)


async def _step(env: Env, decision: Decision) -> Moment:
    if not decision.actions:
        return Moment(observation=Observation(results=(decision.problem,)))
    with boundary(FailureClass.DESKTOP, "the environment"):
        return await env.step(decision.actions)


def _uncancel() -> None:
    task = asyncio.current_task()
    while task is not None and task.uncancel():
        pass
