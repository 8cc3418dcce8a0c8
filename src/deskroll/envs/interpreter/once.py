"""Snippets run once, in a sandbox of their own that ends with them: for code that is called and not talked to."""

from __future__ import annotations

from collections.abc import Sequence

from deskroll.clocks import running_time
from deskroll.envs.interpreter.interpreter import permit
from deskroll.envs.interpreter.output import Said
from deskroll.envs.interpreter.process import Outcome, Process
from deskroll.envs.interpreter.sandbox import Limits
from deskroll.types import Record


class Once(Record, frozen=True):
    """What came of it."""

    shown: str
    """The value of the last snippet, or its traceback, as Python shows them."""
    note: str = ""
    """Why it did not come to its end; empty where it did."""


async def run_once(limits: Limits, snippets: Sequence[str]) -> Once:
    """Run snippets in order, all within the limits; `SetupError` where no sandbox can be had."""
    async with permit():
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
