"""TrainerProcess: a trainer in a process of its own, as the run holds it.

Guarantees: the libraries of a trainer are never imported here; a process that dies, is killed or says that it failed is
a `TrainerError` for that one call, with the last lines of its log, and `open` begins another one. Nothing of it is left
after the block, after a call that was cancelled, or when the run itself is killed. It is given no keys.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deskroll.clocks import time_limit
from deskroll.errors import ConfigError, DeskrollError, InputError, MissingDependency, TrainerError, Untrainable
from deskroll.plugins import load_plugin
from deskroll.train.base import StepReport, TrainBatch, Trainer, TrainerContext
from deskroll.train.child_handle import ChildHandle
from deskroll.train.environment import find_trainer_python
from deskroll.train.wire import LARGEST, Close, Done, Downward, Failed, Open, Save, SaveState, Step, encode

_GRACE_S = 10.0
"""How long it may take to close."""
_KINDS = {each.__name__: each for each in (ConfigError, InputError, MissingDependency)}


class TrainerProcess:
    """One trainer of one run. `open` it first; after a failure, `open` it again."""

    def __init__(
        self,
        trainer: str,
        options: Mapping[str, Any],
        context: TrainerContext,
        *,
        log: Path,
        python: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`trainer`: as the registry names it; `python`: `trainer_python`; `log`: what it prints is added there.

        Raises at once where there is no such trainer, no such option, or no Python for it.
        """
        kind = load_plugin("trainer", trainer, Trainer)
        kind.read_options(options, f"options of trainer {trainer}")
        own = kind.own_python or bool(python)
        self._env = os.environ if env is None else env
        self.python = find_trainer_python(python, self._env) if own else Path(sys.executable)
        self.log = log
        self._order = Open(
            trainer=trainer, options=dict(options), context=context, checkpoint="", path=() if own else tuple(sys.path)
        )
        self._child: ChildHandle | None = None
        self._failed = "it has not been opened"
        """Why it cannot be asked; empty: it can."""
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> TrainerProcess:
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            async with time_limit(_GRACE_S):
                await self._ask(Close(), "close")
        except (TimeoutError, DeskrollError):
            pass  # it is ended either way
        finally:
            await asyncio.shield(self._end())

    @property
    def pid(self) -> int | None:
        """Its process; None: there is none."""
        return None if self._child is None else self._child.process.pid

    async def open(self, checkpoint: Path, state: Path | None) -> None:
        """Load these weights in a new process; the one before, if any, is ended."""
        await self._end()
        self._child = await ChildHandle.start(self.python, self._env, self.log)
        self._failed = ""
        order, kept = self._order, None if state is None else str(state.absolute())
        await self._ask(
            Open(
                trainer=order.trainer, options=order.options, context=order.context, path=order.path,
                checkpoint=str(checkpoint.absolute()), state=kept,
            ),
            f"open {checkpoint}",
        )  # fmt: skip

    async def step(self, batch: TrainBatch) -> StepReport:
        """Take a step."""
        return (await self._ask(Step(batch=batch), f"take step {batch.step}")).report or StepReport()

    async def save(self, folder: Path) -> None:
        """Write the weights into a folder that is there and empty."""
        await self._ask(Save(folder=str(folder.absolute())), f"save to {folder}")

    async def save_state(self, folder: Path) -> None:
        """Write what it goes on from into a folder that is there and empty."""
        await self._ask(SaveState(folder=str(folder.absolute())), f"save its state to {folder}")

    async def _ask(self, message: Downward, what: str) -> Done:
        async with self._turn:
            about = f"trainer {self._order.trainer} cannot {what}"
            if self._failed or self._child is None:
                raise TrainerError(f"{about}: {self._failed}; open it again")
            data = encode(message)
            if len(data) > LARGEST:
                raise TrainerError(
                    f"{about}: that is {len(data):,} bytes, and {LARGEST:,} is the most; take fewer groups a batch"
                )
            self._failed = "what it was asked last has failed"
            try:
                answer = await self._child.ask(data)
            except TrainerError as died:
                raise TrainerError(f"{about}: {died}") from None
            except asyncio.CancelledError:
                await asyncio.shield(self._end())
                raise
            if isinstance(answer, Failed):
                raise error_of(answer, about)
            self._failed = ""
            return answer

    async def _end(self) -> None:
        child, self._child = self._child, None
        self._failed = self._failed or "it has been closed"
        if child is not None:
            await child.end()


def error_of(failed: Failed, about: str) -> DeskrollError:
    """What a process said went wrong, as it was raised there; `about`: what it was asked for."""
    if failed.kind in _KINDS:
        return _KINDS[failed.kind](failed.message)
    kind = Untrainable if failed.kind == Untrainable.__name__ else TrainerError
    error = kind(f"{about}: {failed.message}")
    error.trace = failed.trace
    return error
