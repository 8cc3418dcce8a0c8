"""One attempt judged: postconfig, then each part by whoever judges it, then the rules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from deskroll.desktops.base import Desktop
from deskroll.envs.base import Ending
from deskroll.envs.osworld.evaluate import asked, rules
from deskroll.envs.osworld.evaluate.choice import Evaluators, Judge, choose
from deskroll.envs.osworld.evaluate.native import engine
from deskroll.envs.osworld.evaluate.own import judging as own
from deskroll.envs.osworld.evaluate.own.named import own_functions
from deskroll.envs.osworld.evaluate.parts import Evaluation, Part, evaluation_of
from deskroll.envs.osworld.evaluate.upstream import judging
from deskroll.envs.osworld.settings import OSWorldSettings
from deskroll.envs.osworld.setup import SetupContext, perform
from deskroll.errors import EvaluatorError, InputError, SetupError
from deskroll.models.base import Model
from deskroll.types import Score, Task

Keep = Callable[[str, bytes], object]
"""Keeps a file with the attempt, under that name."""
TRACEBACK = "evaluator.txt"
"""The file that the traceback behind a 0 is kept in; that of a failure is the failure's own."""


def evaluator_files(task: Task, folder: Path) -> list[Path]:
    """The files beside the tasks whose functions judge it; `InputError` where there is no such file or function."""
    functions = list(own_functions(task.evaluator))
    for function in functions:
        function.source(folder)
    return [function.path(folder) for function in functions]


def looks_at_desktop(task: Task) -> bool:
    """Whether a task is judged by what is left on its desktop; one that cannot be done is judged by what was said."""
    return not evaluation_of(task.evaluator).infeasible


async def evaluate(
    task: Task,
    desktop: Desktop,
    ending: Ending,
    context: SetupContext | None = None,
    *,
    evaluators: Evaluators | str = Evaluators.AUTO,
    keep: Keep = lambda name, data: None,
    model: Model | None = None,
) -> Score:
    """The score of what was left behind. `context` is what the task's set-up was done with; `keep` gets tracebacks;
    `model` is asked where the task wants that."""
    context = context or SetupContext(task.id, OSWorldSettings())

    def ask(part: Part) -> Awaitable[Score]:
        return asked.judge(part, desktop, task, ending, model)

    notes: list[str] = []
    try:
        evaluation = evaluation_of(task.evaluator)
        if (score := rules.by_ending(evaluation, ending.stop)) is not None:
            return score
        judges = choose(task, Evaluators(evaluators))
        await _perform_postconfig(evaluation, desktop, context)
        scores: list[Score] = []
        values = _values(task, evaluation, judges, desktop, context, scores, notes, ask=ask)
        value = await rules.fold(evaluation.conj, values)
        reason = "; ".join(dict.fromkeys(each.reason for each in scores))
        found = _join_texts(evaluation, [each.found for each in scores])
        expected = _join_texts(evaluation, [each.expected for each in scores])
        return Score(value=value, reason=reason, found=found, expected=expected)
    except (EvaluatorError, InputError) as error:
        made = EvaluatorError(f"task {task.id!r}: {error}")
        made.trace = error.trace
        raise made from error
    finally:
        if notes:
            keep(TRACEBACK, "\n\n".join(notes).encode(errors="replace"))


def _join_texts(evaluation: Evaluation, texts: Sequence[str | None]) -> str | None:
    """What the parts that were judged have to say; of several, each by the name of its metric."""
    if len(evaluation.parts) == 1:
        return texts[0]
    lines = [f"{part.func}: {text}" for part, text in zip(evaluation.parts, texts, strict=False) if text is not None]
    return "\n".join(lines) or None


async def _values(
    task: Task,
    evaluation: Evaluation,
    judges: Sequence[Judge],
    desktop: Desktop,
    context: SetupContext,
    scores: list[Score],
    notes: list[str],
    *,
    ask: Callable[[Part], Awaitable[Score]],
) -> AsyncIterator[float]:
    for part, judge in zip(evaluation.parts, judges, strict=True):
        if judge is Judge.NATIVE:
            scores.append(await engine.judge(part, desktop))
        elif judge is Judge.MODEL:
            scores.append(await ask(part))
        elif judge is Judge.OWN:
            scores.append(await own.judge(part, desktop, context.folder, note=notes.append))
        else:
            scores.append(await judging.judge(part, desktop, task, context, note=notes.append))
        value = scores[-1].value
        assert value is not None  # noqa: S101  (what cannot be judged has raised)
        yield value


async def _perform_postconfig(evaluation: Evaluation, desktop: Desktop, context: SetupContext) -> None:
    if not evaluation.postconfig:
        return
    try:
        await perform(evaluation.postconfig, desktop, replace(context, forgiving=True))
    except SetupError as error:
        raise EvaluatorError(f"evaluator.postconfig: {error}") from error
