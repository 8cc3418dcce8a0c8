"""A worker: runs attempts that its coordinator orders, many at a time, until the control socket closes.

Guarantees: it writes into the folders of its own attempts only, and ends with its coordinator, even where it hangs.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Coroutine

import uvloop

from deskroll.errors import ConfigError, DeskrollError, StoreError
from deskroll.events import WorkerLogged
from deskroll.rollout.backends.busy import BusyMeter
from deskroll.rollout.backends.runner import AttemptRunner
from deskroll.rollout.backends.wire import (
    Beat,
    Broken,
    Channel,
    Define,
    Defined,
    Downward,
    Dump,
    Ended,
    Finish,
    Forget,
    GiveBack,
    GivenBack,
    Happened,
    Kept,
    Ready,
    Run,
    Setup,
    Stop,
    Unwritten,
)
from deskroll.rollout.context import ProcessContext
from deskroll.rollout.events.batch import EventBatch
from deskroll.rollout.live_attempt import LiveAttempt
from deskroll.rollout.openfiles import raise_open_files
from deskroll.rollout.stopping import error_of

BEAT_S = 0.5


def work(_message: bytes, control: int) -> None:
    """In a fork of the zygote: run until the coordinator is gone or says that there is nothing more to do."""
    faulthandler.enable(all_threads=True)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what to stop, and when, is the coordinator's decision
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    raise_open_files()
    # Episodes make little garbage that only the collector can find; looking for it less often saves a tenth of the CPU.
    gc.freeze()
    gc.set_threshold(10_000, 50, 50)
    uvloop.run(_Worker().serve(socket.socket(fileno=control)))


class _Forward(logging.Handler):
    """Sends log lines to the coordinator: nobody reads what a worker prints."""

    def __init__(self, events: EventBatch) -> None:
        super().__init__(logging.WARNING)
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        logged = WorkerLogged(worker=os.getpid(), logger=record.name, level=record.levelno, reason=record.getMessage())
        self._events.emit(logged)


class _Worker:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending = False

    async def serve(self, control: socket.socket) -> None:
        channel = await Channel.over(control)
        events = EventBatch(lambda happened: channel.send(Happened(events=happened)))
        logging.getLogger("deskroll").addHandler(_Forward(events))
        channel.send(Ready(pid=os.getpid()))
        messages = channel.downward()
        first = await anext(messages, None)
        if not isinstance(first, Setup):
            return
        sys.path[:] = first.path
        try:
            sink = events if first.setup.events else None
            async with ProcessContext.open(first.setup, sink=sink) as context:
                runner = AttemptRunner(context)
                beating = asyncio.create_task(self._beat(channel, runner, BusyMeter(context.storage)))
                try:
                    async for message in messages:
                        if isinstance(message, Finish):
                            break
                        self._obey(message, channel, context, runner, events)
                    else:
                        os._exit(0)  # the coordinator is gone: nothing that is under way counts any more
                finally:
                    self._ending = True
                    beating.cancel()
        except DeskrollError as error:
            channel.send(Broken(message=str(error)))
        events.flush()
        await channel.drain()
        await channel.close()

    def _obey(
        self, message: Downward, channel: Channel, context: ProcessContext, runner: AttemptRunner, events: EventBatch
    ) -> None:
        match message:
            case Define(definition=definition):
                context.define(definition)
                self._spawn(_open(definition.digest, channel, context))
            case Forget(digest=digest):
                context.forget(digest)
            case Run(order=order):
                self._spawn(self._run(runner.take(order), channel, runner, events))
            case Stop(key=key, attempt=attempt, failure=failure, visit=visit):
                runner.stop(key, attempt, error_of(failure) if failure else None, visit)
            case GiveBack(attempts=attempts):
                channel.send(Kept(attempts=runner.give_back(attempts)))
            case Dump(key=key, attempt=attempt, why=why):
                self._spawn(runner.dump(key, attempt, why))

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, live: LiveAttempt, channel: Channel, runner: AttemptRunner, events: EventBatch) -> None:
        order = live.order
        try:
            episode = await runner.run(live)
            if episode is not None:
                channel.send(Ended(episode=episode, events=events.take()))
            else:
                events.flush()
                channel.send(GivenBack(key=order.key, attempt=order.attempt))
        except StoreError as error:
            channel.send(Unwritten(key=order.key, attempt=order.attempt, message=str(error)))
        except ConfigError:
            pass  # it was told when it was defined
        except BaseException:
            if self._ending:
                raise
            # A bug of ours, or a task that cancelled itself, is no outcome: this process ends and says why.
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
            os._exit(70)

    async def _beat(self, channel: Channel, runner: AttemptRunner, meter: BusyMeter) -> None:
        while True:
            busy = meter.read()
            # Attempts that hold desktops are dear: they are kept apart, however little they use.
            channel.send(Beat(vitals=runner.vitals(), busy=None if runner.holds_desktops else busy))
            await asyncio.sleep(BEAT_S)


async def _open(digest: str, channel: Channel, context: ProcessContext) -> None:
    """Find what a definition names, which may mean long imports, and tell what came of it."""
    try:
        await context.of(digest)
        channel.send(Defined(digest=digest))
    except ConfigError as error:
        channel.send(Broken(message=str(error), digest=digest))
