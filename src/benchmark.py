"""Benchmark: a file of tasks, and the judging of answers to them, as the users' documents name it.

Thin: reading is `deskroll.tasks`, judging is `deskroll.scoring`. For a checkout; it is not in the wheel.

    benchmark = Benchmark(data_path="data/math_examples.jsonl")
    results = benchmark.evaluate({"sum": "42"}, metric="numeric_match")
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from deskroll.conduct.loops import run_to_end
from deskroll.errors import EvaluatorError, InputError
from deskroll.host.home import expand_home
from deskroll.models.openai import OpenAIModel
from deskroll.models.settings import ModelSettings, load_env
from deskroll.scoring import METRICS, score_answer
from deskroll.tasks import load_tasks
from deskroll.types import UNJUDGED, Score, Task

_JUDGEMENTS = 16
"""Requests to a judge that are open at a time."""


@dataclass(frozen=True)
class BenchmarkItem:
    """One task."""

    id: str
    question: str
    answer: str | None
    """The reference; None where the task has none, or is judged by the state that it leaves."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Every other key of the task: OSWorld's `config`, `evaluator`, `snapshot`, ..., `env_config`, and your own."""


@dataclass(frozen=True)
class EvaluationResult:
    """What one answer came to."""

    item_id: str
    question: str
    ground_truth: str | None
    prediction: str | None
    score: float | None
    """None: it could not be judged; `reason` says why. That is no 0."""
    metric_name: str
    reason: str


class Benchmark:
    """A file of tasks: JSON (a list, `{"items": [...]}`, one object) or JSONL."""

    def __init__(self, data_path: str | Path, name: str = "") -> None:
        self.data_path = Path(expand_home(str(data_path))).absolute()
        self.name = name or self.data_path.stem
        self.tasks: list[Task] = load_tasks(self.data_path)

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[BenchmarkItem]:
        return iter(self.get_items())

    def get_items(self) -> list[BenchmarkItem]:
        """All tasks, in the file's order."""
        return [_item(task) for task in self.tasks]

    def get_item(self, item_id: str) -> BenchmarkItem:
        """One task, by its id."""
        found = [task for task in self.tasks if task.id == item_id]
        if not found:
            raise InputError(f"{self.data_path}: there is no task {item_id!r}")
        return _item(found[0])

    def evaluate(
        self,
        predictions: Mapping[str, str | None] | Sequence[Mapping[str, Any]],
        metric: str = "exact_match",
        *,
        judge_model: str = "",
    ) -> list[EvaluationResult]:
        """Judge answers: a mapping from id to answer, or records with `task_id` (or `id`) and `answer`.

        Every task is in the result. One without an answer scores 0; where its record holds an error, it keeps the
        record's `evaluation_score`: 0 where the agent failed, none where the machine did. (That it was not judged when
        it ran is no error here.) Tasks without a reference answer keep the score of their record, too. `judge_model` is
        for the metric llm_judgement.
        """
        if metric not in METRICS:
            raise InputError(f"metric is {metric!r}; allowed: {', '.join(METRICS)}")
        if judge_model and not METRICS[metric].judged:
            raise InputError(f"judge_model is {judge_model!r}, and {metric} asks no model: leave it out")
        answers, errors, recorded = _answers(predictions)
        if unknown := answers.keys() - {task.id for task in self.tasks}:
            raise InputError(f"{self.data_path}: there is no task {min(unknown)!r}, of which there is an answer")
        if METRICS[metric].judged:
            load_env(Path.cwd())
        results = run_to_end(self._judged(answers, metric, judge_model))
        return [_as_recorded(each, errors.get(each.item_id, ""), recorded.get(each.item_id)) for each in results]

    async def _judged(self, answers: Mapping[str, str | None], metric: str, judge_model: str) -> list[EvaluationResult]:
        async with AsyncExitStack() as stack:
            judge = None
            if METRICS[metric].judged:  # the others ask no model, and need no settings for one
                settings = ModelSettings(max_in_flight=_JUDGEMENTS)
                if judge_model:
                    settings = settings.model_copy(update={"name": judge_model})
                judge = await stack.enter_async_context(OpenAIModel(settings))
            return await asyncio.gather(*(_judged(task, answers.get(task.id), metric, judge) for task in self.tasks))


async def _judged(task: Task, answer: str | None, metric: str, judge: OpenAIModel | None) -> EvaluationResult:
    try:
        score = await score_answer(metric, answer, task.answer, question=task.instruction, judge=judge)
    except EvaluatorError as failed:
        score = Score(value=None, reason=str(failed))
    return EvaluationResult(
        item_id=task.id,
        question=task.instruction,
        ground_truth=task.answer,
        prediction=answer,
        score=score.value,
        metric_name=metric,
        reason=score.reason,
    )


def _answers(
    predictions: Mapping[str, str | None] | Sequence[Mapping[str, Any]],
) -> tuple[dict[str, str | None], dict[str, str], dict[str, float]]:
    """Answers, errors, and the scores that were given when the tasks ran, by the task's id."""
    if isinstance(predictions, Mapping):
        return {str(name): _text(answer, str(name)) for name, answer in predictions.items()}, {}, {}
    answers: dict[str, str | None] = {}
    errors: dict[str, str] = {}
    recorded: dict[str, float] = {}
    for n, record in enumerate(predictions):
        if not isinstance(record, Mapping):
            raise InputError(
                f"predictions[{n}] is a {type(record).__name__}; records are mappings, with task_id and answer"
            )
        name = record.get("task_id", record.get("id"))
        if name is None:
            raise InputError(f"predictions[{n}] has neither task_id nor id")
        if str(name) in answers:
            raise InputError(f"predictions[{n}]: there is an answer to task {name!r} already")
        answers[str(name)] = _text(record.get("answer"), str(name))
        if record.get("error") and not str(record["error"]).startswith(UNJUDGED.reason):
            errors[str(name)] = str(record["error"])
        if isinstance(record.get("evaluation_score"), int | float):
            recorded[str(name)] = float(record["evaluation_score"])
    return answers, errors, recorded


def _as_recorded(result: EvaluationResult, error: str, score: float | None) -> EvaluationResult:
    """What only the run itself could judge: whose failure it was, and the state that a task left."""
    if result.prediction is None and error:
        return replace(result, score=score, reason=error)
    if result.ground_truth is None and score is not None:
        return replace(result, score=score, reason="as its own evaluator judged it when it ran")
    return result


def _text(answer: object, name: str) -> str | None:
    """An answer as text, as task files may hold it."""
    if answer is None or isinstance(answer, str):
        return answer
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        return str(answer)
    raise InputError(f"the answer to task {name!r} is a {type(answer).__name__}; it must be a text, a number or None")


def _item(task: Task) -> BenchmarkItem:
    metadata = dict(task.metadata)
    for name, value in (("domain", task.domain), ("env", task.env), ("evaluator", task.evaluator)):
        if value:
            metadata[name] = value
    if task.setup:
        metadata["config"] = list(task.setup)
    return BenchmarkItem(id=task.id, question=task.instruction, answer=task.answer, metadata=metadata)
