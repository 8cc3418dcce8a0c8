"""A run as verl's Parquet files: samples.parquet, a row a sample, and prompts.parquet, a row a task.

samples.parquet has the fields of `AgentLoopOutput`, as `DeskrollAgentLoop` returns them. prompts.parquet is what verl's
`RLHFDataset` reads: rows that `DeskrollAgentLoop` runs episodes of. Episodes without a score have no samples; one whose
tokens are not exact is named, and left out.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import msgspec

from deskroll.errors import MissingDependency, StoreError
from deskroll.export import Chosen, Exported, Output
from deskroll.export.episodes import Tell, check_whole
from deskroll.export.tables import TableFile
from deskroll.rollout.samples import ImageToken, SampleError, samples
from deskroll.store import AttemptReader
from deskroll.tasks import tasks_folder
from deskroll.train.verl_columns import VerlColumns
from deskroll.types import Episode, Task

try:
    import pyarrow as pa
except ImportError as error:
    raise MissingDependency("Parquet files need pyarrow: pip install 'deskroll[parquet]'") from error

AGENT_NAME = "deskroll"
"""Under which verl knows our agent loop."""
_IDS = pa.list_(pa.int64())
_FLOATS = pa.list_(pa.float64())
SAMPLES = pa.schema({
    "prompt_ids": _IDS, "response_ids": _IDS, "response_mask": _IDS, "response_logprobs": _FLOATS,
    "multi_modal_data": pa.struct({"images": pa.list_(pa.binary())}), "num_turns": pa.int32(),
    "reward_score": pa.float64(),
    "extra_fields": pa.struct({
        "episode": pa.string(), "versions": pa.list_(pa.string()), "min_global_steps": pa.int64(),
        "max_global_steps": pa.int64(), "turn_scores": _FLOATS, "tool_rewards": _FLOATS,
        "reward_extra_info": pa.struct({"success": pa.float64()}),
    }),
})  # fmt: skip
PROMPTS = pa.schema({
    "data_source": pa.string(), "prompt": pa.list_(pa.struct({"role": pa.string(), "content": pa.string()})),
    "ability": pa.string(), "reward_model": pa.struct({"style": pa.string(), "ground_truth": pa.string()}),
    "agent_name": pa.string(),
    "extra_info": pa.struct({"index": pa.int64(), "task": pa.string(), "folder": pa.string()}),
})  # fmt: skip


def export_verl(chosen: Chosen, output: Output, tell: Tell, *, image_token: ImageToken = None) -> Exported:
    """Write both tables; they appear when they are whole."""
    problems: list[str] = []
    tasks: dict[str, Task] = {}
    unscored = 0
    with ExitStack() as stack:
        table = stack.enter_context(TableFile(output.part("samples.parquet"), SAMPLES))
        prompts = stack.enter_context(TableFile(output.part("prompts.parquet"), PROMPTS))
        for number, (episode, attempt) in enumerate(chosen):
            tell(number, len(chosen.episodes))
            try:
                if (task := attempt.task()) is not None:
                    tasks.setdefault(task.id, task)
                if (points := episode.points) is None:
                    unscored += 1
                    continue
                check_whole(episode, attempt)
                rows = _sample_rows(episode, attempt, points, image_token)
            except (StoreError, SampleError) as error:
                problems.append(str(error))
                continue
            for row in rows:
                table.add(row)
        folder = _folder(chosen)
        for number, task in enumerate(tasks.values()):
            prompts.add(prompt_row(number, task, folder))
    for name in ("samples.parquet", "prompts.parquet"):
        output.publish(name)
    tell(len(chosen.episodes), len(chosen.episodes))
    return Exported(
        run_id=chosen.run.info.run_id, to="verl", output=str(output.path), episodes=len(chosen.episodes),
        written=len(chosen.episodes) - len(problems) - unscored, empty=unscored, problems=tuple(problems),
    )  # fmt: skip


def prompt_row(number: int, task: Task, folder: str) -> dict[str, Any]:
    """A task as verl's dataset has it; the conversation itself is made by the episode's agent."""
    return {
        "data_source": AGENT_NAME,
        "prompt": [{"role": "user", "content": task.instruction}],
        "ability": task.domain,
        "reward_model": {"style": "rule", "ground_truth": task.answer or ""},
        "agent_name": AGENT_NAME,
        "extra_info": {"index": number, "task": msgspec.json.encode(task).decode(), "folder": folder},
    }


def _sample_rows(
    episode: Episode, attempt: AttemptReader, points: float, image_token: ImageToken
) -> list[dict[str, Any]]:
    made = []
    for sample in samples(attempt, image_token=image_token):
        columns = VerlColumns.of(sample, episode, points)
        made.append(
            {
                "prompt_ids": columns.prompt_ids,
                "response_ids": columns.response_ids,
                "response_mask": columns.response_mask,
                "response_logprobs": columns.response_logprobs,
                "multi_modal_data": {"images": [attempt.image(name) for name in columns.images]},
                "num_turns": columns.num_turns,
                "reward_score": columns.reward_score,
                "extra_fields": columns.extra_fields,
            }
        )
    return made


def _folder(chosen: Chosen) -> str:
    """Where the files are that the run's tasks name, as far as the run says."""
    tasks = chosen.run.info.config.get("tasks")
    return str(tasks_folder(tasks)) if isinstance(tasks, str) and tasks else ""
