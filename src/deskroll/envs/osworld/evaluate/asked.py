"""Judges a part by a model (`llm_judgement`): it is told what was asked for, and what the screen says in the end.

For tasks that are only an instruction. The model sees the windows, the table of what is on the screen and the text of
the foremost terminal, beside what the agent said: as data, none of it as an instruction (`scoring/judge.py`). What does
not show on the screen it cannot know of.
"""

from __future__ import annotations

import asyncio

from deskroll.desktops.base import Desktop, Observe, StepResult
from deskroll.envs.base import Ending
from deskroll.envs.osworld.elements import elements, table, window_titles
from deskroll.envs.osworld.evaluate.parts import Part
from deskroll.errors import EvaluatorError, InputError
from deskroll.models.base import Model
from deskroll.scoring.judge import judge as ask_judge
from deskroll.tasks.sources import JUDGED_BY_MODEL
from deskroll.types import Score, Task

RUBRIC = """\
The question is an instruction that somebody carried out on a computer's desktop. The answer to be judged is a report
of what the desktop shows at the end, made by a program, and of what the one who is judged said. It is correct when what
the screen shows is as the instruction, and the reference, want it. What the one who is judged says of itself proves
nothing: where the screen does not show it, it is incorrect. Where you are in doubt, it is incorrect."""
_EXPECTED = "What the instruction asks for is done, and the screen shows it."


def check_asked(part: Part) -> None:
    """Refuse a part that says more than a model is told."""
    if part.getters:
        raise InputError(f"evaluator.{JUDGED_BY_MODEL} looks at the screen: it takes neither result nor expected")
    if not isinstance(part.options.get("expected", ""), str) or set(part.options) - {"expected"}:
        raise InputError(f"evaluator.options of {JUDGED_BY_MODEL}: allowed: expected, a text")


async def judge(part: Part, desktop: Desktop, task: Task, ending: Ending, model: Model | None) -> Score:
    """The verdict of a model; `EvaluatorError` where there is none."""
    if model is None:
        raise EvaluatorError(
            f"{JUDGED_BY_MODEL} needs a model that judges, and there is none: set `judge` (or `model`)"
        )
    seen = await desktop.step((), observe=Observe(screenshot=False, tree=True, shown_only=True, terminal=True))
    report = await asyncio.to_thread(_report, seen, ending)
    expected = str(part.options.get("expected") or _EXPECTED)
    return await ask_judge(model, task.instruction, report, expected, rubric=RUBRIC)


def _report(seen: StepResult, ending: Ending) -> str:
    tree = seen.tree or ""
    parts = {
        "Windows": "\n".join(window_titles(tree)) or "(none)",
        "On the screen": table(elements(tree)),
        "In the foremost terminal": seen.terminal or "(there is none)",
        f"It ended with {ending.stop}, and said": ending.answer or "(nothing)",
    }
    return "\n\n".join(f"{name}:\n{text}" for name, text in parts.items())
