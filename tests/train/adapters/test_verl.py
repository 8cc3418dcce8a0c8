"""verl's own worker over our episodes: its tokens, masks, log-probabilities and rewards are those of the server.

The server is the tests' own, behind the one call that an agent loop makes of verl's; everything else is verl's.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import verl
import yaml
from hydra import compose, initialize_config_dir
from pyarrow import parquet
from transformers import LlavaProcessor, Qwen2Config
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, AgentLoopWorker, DictConfigWrap
from verl.protocol import DataProto
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.workers.rollout.replica import TokenOutput

from deskroll.errors import InputError
from deskroll.store import Run
from deskroll.train.driven import EpisodeUnscored, drive
from deskroll.train.verl import DeskrollAgentLoop, _settings
from deskroll.train.verl_tables import PROMPTS, SAMPLES, prompt_row
from deskroll.types import Task
from tests.train.adapters.parts import make_tokenizer, sims, until_none_is_leased, write_config, write_tasks

pytestmark = pytest.mark.timeout(600)
WAIT, DONE, FAIL = (f"```\n{word}\n```<|im_end|>" for word in ("WAIT", "DONE", "FAIL"))


GROWS = {"max_images": 100}
"""No tree is withheld, so that the conversation only grows."""


class Server:
    """Answers as verl's server manager does."""

    def __init__(
        self, tokenizer: Any, says: Sequence[str] = (WAIT, WAIT, DONE, FAIL), *, in_turn: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._dice = random.Random(0)
        self._says = itertools.cycle(says) if in_turn else iter(lambda: self._dice.choice(says), None)
        self.sessions: dict[str, list[tuple[list[int], list[int], list[float]]]] = {}
        """Of each request id, prompts, answers and their log-probabilities."""
        self.pictures: list[list[Any]] = []
        """Of each request."""

    async def generate(
        self,
        request_id: str,
        *,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        image_data: list[Any] | None = None,
    ) -> TokenOutput:
        await asyncio.sleep(0)
        self.pictures.append(image_data or [])
        assert sampling_params["logprobs"] is True
        said = self._tokenizer.encode(next(self._says), add_special_tokens=False)
        logprobs = [-self._dice.random() for _ in said]
        self.sessions.setdefault(request_id, []).append((list(prompt_ids), said, logprobs))
        step = len(self.sessions[request_id]) + 6
        fields = {"global_steps": step, "min_global_steps": step, "max_global_steps": step}
        return TokenOutput(token_ids=said, log_probs=logprobs, stop_reason="completed", extra_fields=fields)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_tokenizer(tmp_path_factory.mktemp("model"))
    Qwen2Config(
        vocab_size=300, hidden_size=64, num_hidden_layers=1, architectures=["Qwen2ForCausalLM"]
    ).save_pretrained(str(folder))
    return folder


def worker_of(folder: Path, model: Path, config: Path, tries: int = 3, **says: Any) -> tuple[AgentLoopWorker, Server]:
    loops = folder / "loops.yaml"
    loops.write_text(
        yaml.safe_dump(
            [
                {
                    "name": "deskroll",
                    "_target_": "deskroll.train.verl.DeskrollAgentLoop",
                    "config": str(config),
                    "tries": tries,
                }
            ]
        )
    )
    settings = str(Path(verl.__file__).parent / "trainer" / "config")
    rollout = "actor_rollout_ref.rollout"
    with initialize_config_dir(config_dir=settings, version_base=None):
        made = compose("ppo_trainer", overrides=[
            f"actor_rollout_ref.model.path={model}", f"{rollout}.name=vllm", f"{rollout}.prompt_length=4096",
            f"{rollout}.response_length=1024", f"{rollout}.agent.agent_loop_config_path={loops}",
            f"{rollout}.calculate_log_probs=true",
        ])  # fmt: skip
    worker = AgentLoopWorker(made, llm_client=None)
    worker.llm_client = server = Server(worker.tokenizer, **says)
    return worker, server


def loop_of(worker: AgentLoopWorker, server: Server, config: Path, processor: Any = None) -> DeskrollAgentLoop:
    return DeskrollAgentLoop(
        DictConfigWrap(worker.config), server, worker.tokenizer, processor, RLHFDataset,
        DictConfigWrap(worker.config.data), config=str(config),
    )  # fmt: skip


def rows_of(folder: Path, tasks: Sequence[Task], worker: AgentLoopWorker, samples: int = 1) -> DataProto:
    """As verl's own dataset reads our rows."""
    path = folder / "prompts.parquet"
    rows = [prompt_row(number, task, str(folder)) for number, task in enumerate(tasks)]
    parquet.write_table(pa.Table.from_pylist(rows, schema=PROMPTS), path)
    dataset = RLHFDataset(str(path), worker.tokenizer, worker.config.data)
    found = collate_fn([dataset[n] for n in range(len(dataset)) for _ in range(samples)])
    return DataProto.from_single_dict(found)


async def test_a_batch_through_verls_own_worker(tmp_path: Path, model: Path) -> None:
    write_tasks(tmp_path, 6)
    async with sims(tmp_path, step_crashes="0.02", seed="5") as (at, pool):
        path, _, tasks = write_config(tmp_path, pool=at, agent_options=GROWS)
        worker, server = worker_of(tmp_path, model, path)
        batch = rows_of(tmp_path, tasks, worker, samples=4)
        made = await worker.generate_sequences(batch)
        await until_none_is_leased(pool)
        driven = await drive(_settings(str(path), tasks[0]))
        driven.close()
    assert len(made) == 24
    run = Run.open(driven.folder)
    points = {f"train/{each.key.round}/{each.key.task}/0#{each.attempt}": each.points for each in run.outcomes()}
    told = {tuple(turns[0][0]): turns for turns in server.sessions.values()}
    assert len(told) == 6, "each task has a prompt of its own"
    for n in range(len(made)):
        check_row(made, n, server, points)
    assert made.batch["rm_scores"].sum().item() == sum(points[name] for name in made.non_tensor_batch["episode"])


def check_row(made: DataProto, n: int, server: Server, points: dict[str, float | None]) -> None:
    """One sample is the whole of one session at the server: prompt, and then each answer with what came between."""
    batch, length = made.batch[n], made.batch["prompts"].shape[1]
    attended = batch["attention_mask"].tolist()
    prompt = [token for token, counts in zip(batch["prompts"].tolist(), attended[:length], strict=True) if counts]
    size = sum(attended[length:])
    response, mask = batch["responses"].tolist()[:size], batch["response_mask"].tolist()[:size]
    logprobs = batch["rollout_log_probs"].tolist()[:size]
    runs = [
        (counts, [response[place] for place in places], [logprobs[place] for place in places])
        for counts, places in ((key, list(group)) for key, group in itertools.groupby(range(size), mask.__getitem__))
    ]
    sampled = [(tokens, values) for counts, tokens, values in runs if counts]
    matching = [
        turns
        for turns in server.sessions.values()
        if turns[0][0] == prompt
        and [said for _, said, _ in turns] == [tokens for tokens, _ in sampled]
        and np.allclose(np.concatenate([values for _, _, values in turns]), np.concatenate([v for _, v in sampled]))
    ]
    assert len(matching) == 1, "the tokens are those of one session"
    *_, (last_prompt, last_said, _) = matching[0]
    assert last_prompt + last_said == prompt + response
    name = made.non_tensor_batch["episode"][n]
    assert batch["rm_scores"].sum().item() == points[name]
    assert batch["rm_scores"][size - 1].item() == points[name]
    turns = len(matching[0])
    assert made.non_tensor_batch["versions"][n] == [str(each + 7) for each in range(turns)]
    assert (made.non_tensor_batch["min_global_steps"][n], made.non_tensor_batch["max_global_steps"][n]) == (
        7,
        turns + 6,
    )
    assert made.non_tensor_batch["__num_turns__"][n] == 2 * turns


async def test_a_response_that_grows_too_long_is_the_agents(tmp_path: Path, model: Path) -> None:
    write_tasks(tmp_path, 1)
    path, _, tasks = write_config(tmp_path, provider="sim", limits={"max_turns": 50}, agent_options=GROWS)
    worker, _ = worker_of(tmp_path, model, path, says=(f"{'so ' * 100}{WAIT}",))
    made = await worker.generate_sequences(rows_of(tmp_path, tasks, worker))
    assert made.batch["rm_scores"].sum().item() == 0.0
    assert made.batch["responses"].shape[1] == 1024
    (await drive(_settings(str(path), tasks[0]))).close()


@pytest.mark.parametrize("takes_several", [True, False])
async def test_turns_that_do_not_join(tmp_path: Path, model: Path, takes_several: bool) -> None:
    write_tasks(tmp_path, 1)
    path, _, (task,) = write_config(tmp_path, provider="sim", agent_options={"max_images": 2})
    worker, server = worker_of(tmp_path, model, path, says=(WAIT,))
    worker.config.trainer.use_v1 = takes_several
    loop = loop_of(worker, server, path)
    row = prompt_row(0, task, str(tmp_path))
    if takes_several:
        outputs = await loop.run({}, **row)
        (turns,) = server.sessions.values()
        assert [each.num_turns for each in outputs] == [4, 2, 2, 2, 2]
        assert [
            token for each in outputs for token, m in zip(each.response_ids, each.response_mask, strict=True) if m
        ] == [token for _, said, _ in turns for token in said]
        assert {each.reward_score for each in outputs} == {0.0}
    else:
        with pytest.raises(InputError, match="make 5 samples"):
            await loop.run({}, **row)
    (await drive(_settings(str(path), task))).close()


SEEN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{{ '<image>' if p.type == 'image' else p.text }}{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def seeing(tokenizer: Any) -> LlavaProcessor:
    """A processor that makes four tokens of a picture."""
    names = [*tokenizer.extra_special_tokens, "<image>"]
    tokenizer.add_special_tokens({"additional_special_tokens": names})
    size = {"height": 28, "width": 28}
    images = CLIPImageProcessorPil(size=size, crop_size=size)
    return LlavaProcessor(images, tokenizer, patch_size=14, vision_feature_select_strategy="full", chat_template=SEEN)


async def test_pictures_are_where_the_agent_showed_them(tmp_path: Path, model: Path) -> None:
    write_tasks(tmp_path, 1)
    path, _, (task,) = write_config(
        tmp_path, provider="sim", env_options={"observation_type": "screenshot"}, agent_options=GROWS
    )
    worker, server = worker_of(tmp_path, model, path, says=(WAIT, WAIT, FAIL), in_turn=True)
    processor = seeing(worker.tokenizer)
    output = await loop_of(worker, server, path, processor).run({}, **prompt_row(0, task, str(tmp_path)))
    ids = output.prompt_ids + output.response_ids
    assert [len(pictures) for pictures in server.pictures] == [1, 2, 3]
    assert ids.count(processor.image_token_id) == 4 * 3 and len(output.multi_modal_data["images"]) == 3
    shown = [each.tobytes() for each in output.multi_modal_data["images"]]
    assert shown == [each.tobytes() for each in server.pictures[-1]]
    assert (output.num_turns, output.reward_score) == (6, 1.0)
    (await drive(_settings(str(path), task))).close()


async def test_an_episode_without_a_score_is_run_again_and_then_raises(tmp_path: Path, model: Path) -> None:
    write_tasks(tmp_path, 1)
    async with sims(tmp_path, step_crashes="1") as (at, pool):
        path, _, tasks = write_config(tmp_path, pool=at)
        worker, _ = worker_of(tmp_path, model, path, tries=2, says=(WAIT,))
        with pytest.raises(EpisodeUnscored, match="t0"):
            await worker.generate_sequences(rows_of(tmp_path, tasks, worker))
        await until_none_is_leased(pool)
        driven = await drive(_settings(str(path), tasks[0]))
        driven.close()
    assert [each.points for each in Run.open(driven.folder).outcomes()] == [None, None]


async def test_a_row_without_a_task_says_how_rows_are_made(tmp_path: Path, model: Path) -> None:
    write_tasks(tmp_path, 1)
    path, _, _ = write_config(tmp_path, provider="sim")
    worker, server = worker_of(tmp_path, model, path)
    with pytest.raises(InputError, match="--to verl"):
        await loop_of(worker, server, path).run({}, extra_info={"index": 0})


async def test_calls_of_tools(tmp_path: Path, model: Path) -> None:
    """The chat agent with a calculator, whose calls verl's own parser reads."""
    task = Task(id="sum", instruction="What is 6*7?", answer="42")
    (tmp_path / "tasks.jsonl").write_text('{"id": "sum", "instruction": "What is 6*7?", "answer": "42"}\n')
    path, _, _ = write_config(tmp_path, env="math", agent="chat", env_options={}, provider="sim")
    call = '<tool_call>\n{"name": "calculator", "arguments": {"expressions": ["6*7"]}}\n</tool_call><|im_end|>'
    worker, server = worker_of(tmp_path, model, path, says=(call, "42<|im_end|>"), in_turn=True)
    made = await worker.generate_sequences(rows_of(tmp_path, [task], worker))
    assert made.batch["rm_scores"].sum().item() == 1.0
    assert sum(made.batch["response_mask"][0].tolist()) == sum(len(said) for _, said, _ in server.sessions.popitem()[1])
    (await drive(_settings(str(path), task))).close()


def test_exported_rows_are_verls_own_fields() -> None:
    fields = AgentLoopOutput.model_fields
    assert set(SAMPLES.names) <= set(fields)
    row = {
        "prompt_ids": [1], "response_ids": [2, 3], "response_mask": [1, 0], "response_logprobs": [-0.5, 0.0],
        "multi_modal_data": {"images": []}, "num_turns": 2, "reward_score": 1.0,
        "extra_fields": {"episode": "train/0/a/0#1", "versions": ["1"]},
    }  # fmt: skip
    (back,) = pa.Table.from_pylist([row], schema=SAMPLES).to_pylist()
    assert AgentLoopOutput(**back, metrics={}).as_dict()["rm_scores"].tolist() == [0.0, 1.0]
