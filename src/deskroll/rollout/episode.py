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
from deskroll.envs import Ending, Env, TurnResult
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
from deskroll.events import EpisodeUnclosed
from deskroll.rollout.cancelled import blaming, from_within, uncancel
from deskroll.rollout.context import EpisodeContext
from deskroll.rollout.deadline import turns_within, within
from deskroll.rollout.live_attempt import LiveAttempt
from deskroll.rollout.recorder import EpisodeRecorder
from deskroll.types import UNJUDGED, Decision, Episode, Observation, Stage, StopReason

_log = logging.getLogger(__name__)


async def run_episode(live: LiveAttempt, context: EpisodeContext) -> Episode | None:
    """Run one attempt to its end; None where it was given back before it began."""
    notes = EpisodeRecorder(live, context)
    try:
        try:
            live.check_wanted()
            with blaming(live, FailureClass.DESKTOP, f"episode {live.order.name}"):
                async with context.desktop(live) as desktop:
                    await _attempt(live, context, notes, desktop)
        except asyncio.CancelledError:
            if not live.cancelled:  # nobody stopped this attempt: its task itself is being ended
                raise
        except StoreError:
            raise
        except DeskrollError as error:
            if not notes.judged:
                notes.note_failure(error)
        if live.cancelled:
            uncancel()
            if not notes.judged:  # then it was stopped, whatever somebody's code made of that
                if live.given_back:
                    await notes.discard()
                    return None
                notes.note_stop(live.stopped_by)
        live.seal()
        return await notes.seal()
    finally:
        await notes.close()


async def _attempt(live: LiveAttempt, context: EpisodeContext, notes: EpisodeRecorder, desktop: Desktop | None) -> None:
    task, limits = live.order.task, context.spec.limits
    live.begin()
    notes.begin()
    with boundary(FailureClass.SETUP, f"task {task.id!r}", bug=FailureClass.ENV):
        env = context.env(live.order, desktop, notes)
    try:
        async with within(limits.setup_timeout, SetupError, f"the set-up of task {task.id!r}"):
            with blaming(live, FailureClass.SETUP, f"task {task.id!r}", bug=FailureClass.ENV):
                observation = await env.reset()
                tools = env.tools
        with boundary(FailureClass.AGENT, f"agent {context.spec.agent}"):
            agent = context.agent(live.order, env, tools, notes.writer)
        ending = await _turns(live, context, env, agent, observation, notes)
        live.enter(Stage.SCORE)
        if not context.spec.evaluate:
            notes.note_score(ending, UNJUDGED)
            return
        async with within(limits.score_timeout, EvaluatorError, f"the evaluation of task {task.id!r}"):
            with blaming(live, FailureClass.EVALUATOR, f"task {task.id!r}"):
                notes.note_score(ending, await env.score(ending))
    finally:
        await _close(env, live, context, notes)


async def _turns(
    live: LiveAttempt, context: EpisodeContext, env: Env, agent: Agent, observation: Observation, notes: EpisodeRecorder
) -> Ending:
    """Ask, act, look, until the agent or a limit ends it."""
    try:
        async with turns_within(notes.limits.max_time, live.waiting) as clock:
            while (stop := notes.budget.reached()) is None:
                live.enter(Stage.MODEL)
                with blaming(live, FailureClass.AGENT, "the agent"):
                    decision = _checked(await agent.act(observation))
                    notes.note_decision(decision)
                live.check_wanted()
                live.enter(Stage.ACT)
                turn = await _step(env, decision, live)
                live.check_wanted()
                live.enter(Stage.STORE)
                notes.step(turn)
                if decision.gave_up:
                    raise AgentError(decision.gave_up)
                if turn.stop is not None:
                    return Ending(stop=turn.stop, answer=turn.answer)
                observation = turn.observation
    except TimeoutError:
        silence = context.silence(clock.unanswered_s) if live.stage is Stage.MODEL else 0.0
        if silence > (notes.limits.max_time or 0.0) / 2:
            # Nobody had an answer from it all that time: that is the server's doing, and no limit of the agent's.
            raise ModelError(f"the model's server was silent for {silence:.0f} s, until the time was over") from None
        stop = StopReason.MAX_TIME
    return Ending(stop=stop)


def _checked(given: object) -> Decision:
    if not isinstance(given, Decision):
        raise AgentError(f"act gave {given!r:.200}; it has to give a Decision, see docs/agents.md")
    return given


async def _step(env: Env, decision: Decision, live: LiveAttempt) -> TurnResult:
    if not decision.actions:
        return TurnResult(observation=Observation(results=(decision.problem,)))
    with blaming(live, FailureClass.ENV, "the environment"):
        return await env.step(decision.actions)


async def _close(env: Env, live: LiveAttempt, context: EpisodeContext, notes: EpisodeRecorder) -> None:
    """Whatever goes wrong here, the attempt's result is known by now and stays."""
    limit = context.spec.limits.close_timeout
    try:
        async with within(limit, SetupError, "closing it"):
            with from_within(live):
                await env.close()
    except BaseException as error:  # plug-ins may fail in any way
        if comes_from_outside(error):
            raise
        why = context.traces.hide(
            str(error) if isinstance(error, DeskrollError) else f"{type(error).__name__}: {error}"
        )
        notes.note_unclosed(error)
        _log.warning("%s: its environment could not be closed: %s", live.order.name, why)
        context.sink.emit(EpisodeUnclosed(key=live.order.key, attempt=live.order.attempt, reason=why))
