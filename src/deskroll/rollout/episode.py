"""The one loop: reset, act, step, score. Evaluation, service and training all run it.

Guarantees: an attempt that has begun ends with one `Episode`, whose files are durable before it is returned. Whatever
failed carries its class; what the agent did wrong is scored 0, what anything else did wrong is not scored at all.
Only a `StoreError` rises: an attempt that cannot be written down did not happen.
"""

from __future__ import annotations

import asyncio
import logging

from deskroll.agents import Agent
from deskroll.desktops.base import Desktop
from deskroll.envs import Ending, Env, Moment
from deskroll.errors import (
    AgentError,
    DeskrollError,
    EvaluatorError,
    FailureClass,
    ModelError,
    SetupError,
    StoreError,
    boundary,
    comes_from_outside,
)
from deskroll.rollout.cancelled import blaming, from_within, uncancel
from deskroll.rollout.deadline import turns_within, within
from deskroll.rollout.kit import Kit
from deskroll.rollout.live import Live
from deskroll.rollout.notebook import Notebook
from deskroll.types import UNJUDGED, Decision, Episode, Event, Observation, Phase, StopReason

_log = logging.getLogger(__name__)


async def run_episode(live: Live, kit: Kit) -> Episode | None:
    """Run one attempt to its end; None where it was given back before it began."""
    notes = Notebook(live, kit)
    try:
        try:
            live.check_wanted()
            with blaming(live, FailureClass.DESKTOP, f"episode {live.order.name}"):
                async with kit.desktop(live) as desktop:
                    await _attempt(live, kit, notes, desktop)
        except asyncio.CancelledError:
            if not live.cancelled:  # nobody stopped this attempt: its task itself is being ended
                raise
        except StoreError:
            raise
        except DeskrollError as error:
            if not notes.judged:
                notes.failed(error)
        if live.cancelled:
            uncancel()
            if not notes.judged:  # then it was stopped, whatever somebody's code made of that
                if live.given_back:
                    await notes.discard()
                    return None
                notes.stopped(live.stopped_by)
        live.seal()
        return await notes.seal()
    finally:
        await notes.close()


async def _attempt(live: Live, kit: Kit, notes: Notebook, desktop: Desktop | None) -> None:
    task, limits = live.order.task, kit.spec.limits
    live.begin()
    with boundary(FailureClass.SETUP, f"task {task.id!r}", bug=FailureClass.ENV):
        env = kit.env(live.order, desktop, notes)
    try:
        async with within(limits.setup_timeout, SetupError, f"the set-up of task {task.id!r}"):
            with blaming(live, FailureClass.SETUP, f"task {task.id!r}", bug=FailureClass.ENV):
                observation = await env.reset()
                tools = env.tools
        with boundary(FailureClass.AGENT, f"agent {kit.spec.agent}"):
            agent = kit.agent(live.order, env, tools, notes.writer)
        ending = await _turns(live, kit, env, agent, observation, notes)
        live.enter(Phase.SCORE)
        if not kit.spec.evaluate:
            notes.scored(ending, UNJUDGED)
            return
        async with within(limits.score_timeout, EvaluatorError, f"the evaluation of task {task.id!r}"):
            with blaming(live, FailureClass.EVALUATOR, f"task {task.id!r}"):
                notes.scored(ending, await env.score(ending))
    finally:
        await _close(env, live, kit, notes)


async def _turns(live: Live, kit: Kit, env: Env, agent: Agent, observation: Observation, notes: Notebook) -> Ending:
    """Ask, act, look, until the agent or a limit ends it."""
    try:
        async with turns_within(notes.limits.max_time, live.waiting) as clock:
            while (stop := notes.budget.reached()) is None:
                live.enter(Phase.MODEL)
                with blaming(live, FailureClass.AGENT, "the agent"):
                    decision = _checked(await agent.act(observation))
                    notes.decided(decision)
                live.check_wanted()
                live.enter(Phase.ACT)
                moment = await _step(env, decision, live)
                live.check_wanted()
                live.enter(Phase.STORE)
                notes.step(moment)
                if decision.gave_up:
                    raise AgentError(decision.gave_up)
                if moment.stop is not None:
                    return Ending(stop=moment.stop, answer=moment.answer)
                observation = moment.observation
    except TimeoutError:
        silence = kit.silence(clock.unanswered_s) if live.phase is Phase.MODEL else 0.0
        if silence > (notes.limits.max_time or 0.0) / 2:
            # Nobody had an answer from it all that time: that is the server's doing, and no limit of the agent's.
            raise ModelError(f"the model's server was silent for {silence:.0f} s, until the time was over") from None
        stop = StopReason.MAX_TIME
    return Ending(stop=stop)


def _checked(given: object) -> Decision:
    if not isinstance(given, Decision):
        raise AgentError(f"act gave {given!r:.200}; it has to give a Decision, see docs/agents.md")
    return given


async def _step(env: Env, decision: Decision, live: Live) -> Moment:
    if not decision.actions:
        return Moment(observation=Observation(results=(decision.problem,)))
    with blaming(live, FailureClass.ENV, "the environment"):
        return await env.step(decision.actions)


async def _close(env: Env, live: Live, kit: Kit, notes: Notebook) -> None:
    """Whatever goes wrong here, the attempt's result is known by now and stays."""
    limit = kit.spec.limits.close_timeout
    try:
        async with within(limit, SetupError, "closing it"):
            with from_within(live):
                await env.close()
    except BaseException as error:  # plug-ins may fail in any way
        if comes_from_outside(error):
            raise
        why = kit.traces.hide(str(error) if isinstance(error, DeskrollError) else f"{type(error).__name__}: {error}")
        notes.unclosed(error)
        _log.warning("%s: its environment could not be closed: %s", live.order.name, why)
        kit.sink.emit(Event(kind="episode.unclosed", subject=live.order.name, data={"reason": why}))
