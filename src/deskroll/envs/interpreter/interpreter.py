"""An episode's interpreter: starts at the first call, keeps its names, is replaced where code has ended it.

Guarantees: whatever code does, a call returns a text within its time limit and a few seconds. Waiting for a start or
for a free core does not count as the code's time. No more calls compute at once in one event loop than there are cores.

`run_once` is for code that is called and not talked to: in a sandbox of its own, which ends with it.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Sequence

from deskroll.clocks import running_time
from deskroll.envs.interpreter.output import Said
from deskroll.envs.interpreter.process import Outcome, Process
from deskroll.envs.interpreter.sandbox import Limits
from deskroll.errors import SetupError
from deskroll.types import Record

_LOST = "the interpreter was started anew: names, imports and files are lost"
_permits: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = weakref.WeakKeyDictionary()
"""Cores are shared by all interpreters of a loop, whoever made them."""


def _permit() -> asyncio.Semaphore:
    """A core's worth of computing, of the running loop's."""
    loop = asyncio.get_running_loop()
    return _permits.setdefault(loop, asyncio.Semaphore(len(os.sched_getaffinity(0))))


class Interpreter:
    """Runs snippets, one call at a time. `close` it in any case."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._process: Process | None = None
        self._usable = False
        self._turn = asyncio.Lock()

    async def run(self, snippets: Sequence[str]) -> str:
        """Run snippets in order, and show what each printed and gave; `SetupError` where no sandbox can be had."""
        async with self._turn, _permit():
            process, note = await self._ready()
            self._usable = False  # until this call has come to a good end
            try:
                results, self._usable = await self._run_all(process, snippets)
            finally:
                if not self._usable:
                    process.kill()
        results[0] = note + results[0]
        if len(results) == 1:
            return results[0]
        return "\n".join(f"--- {place} of {len(results)} ---\n{text}" for place, text in enumerate(results, 1))

    async def _run_all(self, process: Process, snippets: Sequence[str]) -> tuple[list[str], bool]:
        """One text for each snippet, and whether the interpreter can go on."""
        deadline = running_time() + self._limits.timeout
        results: list[str] = []
        for place, source in enumerate(snippets, 1):
            said = Said(self._limits.output_chars // len(snippets))
            seconds = max(deadline - running_time(), 0.0)
            outcome = await process.run(source, seconds, said, last=place == len(snippets))
            note = await self._note(process, outcome)
            results.append(_joined(said.text(), note))
            if outcome is not Outcome.DONE:
                left = len(snippets) - place
                return [*results, *["[not run]"] * left], outcome is Outcome.INTERRUPTED
        return results, True

    async def _note(self, process: Process, outcome: Outcome) -> str:
        limit = f"stopped: the call's limit of {self._limits.timeout:g} s was reached"
        match outcome:
            case Outcome.DONE:
                return ""
            case Outcome.INTERRUPTED:
                return f"[{limit}; names and files are kept]"
            case Outcome.STUCK:
                return f"[{limit}, and the code did not react to an interrupt; {_LOST}]"
            case Outcome.GONE:
                return f"[{await process.how_it_ended()}; {_LOST}]"

    async def _ready(self) -> tuple[Process, str]:
        """A process that takes snippets, and what there is to say about the one before."""
        note = ""
        if self._process is not None and self._usable:
            if self._process.sound():
                return self._process, ""
            note = f"[since the last call, something that it left running has ended the interpreter; {_LOST}]\n"
        for attempt in (1, 2):
            await self._end()
            self._process = process = Process(self._limits)
            try:
                await process.ready()
            except SetupError:
                if attempt == 2:
                    raise
            except BaseException:
                process.kill()
                raise
            else:
                break
        return process, note

    async def _end(self) -> None:
        if self._process is not None:
            await self._process.end()
            self._process = None

    async def close(self) -> None:
        """End it, with everything that it has started."""
        if self._process is not None:
            self._process.kill()
        async with self._turn:
            await self._end()


def _joined(text: str, note: str) -> str:
    text = text.rstrip("\n")
    return "\n".join(filter(None, (text, note))) or "(no output)"


class Once(Record, frozen=True):
    """What came of it."""

    shown: str
    """The value of the last snippet, or its traceback, as Python shows them."""
    note: str = ""
    """Why it did not come to its end; empty where it did."""


async def run_once(limits: Limits, snippets: Sequence[str]) -> Once:
    """Run snippets in order, all within the limits; `SetupError` where no sandbox can be had."""
    async with _permit():
        process = Process(limits)
        try:
            await process.ready()
            deadline, said = running_time() + limits.timeout, Said(limits.output_chars)
            for place, source in enumerate(snippets, 1):
                said = Said(limits.output_chars)
                left = max(deadline - running_time(), 0.0)
                outcome = await process.run(source, left, said, last=place == len(snippets))
                if outcome is Outcome.GONE:
                    return Once(shown=said.text(), note=await process.how_it_ended())
                if outcome is not Outcome.DONE:
                    return Once(shown=said.text(), note=f"it took more than {limits.timeout:g} s")
            return Once(shown=said.shown.text())
        finally:
            await process.end()
