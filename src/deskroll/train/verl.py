"""DeskrollAgentLoop: verl's `AgentLoopBase` whose `run` is one episode of ours, answered for by verl's own servers.

verl draws prompts, serves the weights and trains; the episode is that of every run. Prompts grow by verl's own
continuous tokens, so that turns join; where an agent's conversation was rewritten, another sample begins. Guarantees:
the tokens of an output are those that verl's server was given and gave, read back from what was stored; whatever ends
`run`, the episode has ended, and its desktop is with the pool.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from deskroll.config import load
from deskroll.errors import InputError, MissingDependency
from deskroll.models.base import ContextTooLong
from deskroll.models.handed import HandedRequest
from deskroll.rollout.config import RunConfig
from deskroll.rollout.loading import check_run
from deskroll.rollout.samples import samples
from deskroll.store import AttemptReader
from deskroll.train.driven import TRAIN, DrivenEpisode, EpisodeUnscored, drive
from deskroll.train.verl_columns import VerlColumns
from deskroll.train.verl_messages import decode_image, read_messages, tool_schemas
from deskroll.types import Completion, Episode, Task, ToolRequest

try:
    from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput
    from verl.experimental.agent_loop.tool_parser import ToolParser
    from verl.tools.schemas import OpenAIFunctionToolSchema
    from verl.utils.tokenizer import get_processor_token_id
except ImportError as error:
    raise MissingDependency("an agent loop of verl's needs verl: pip install 'deskroll[verl]'") from error

_TOO_LONG = 400
_checked: dict[str, RunConfig] = {}
"""Settings by their file: verl makes a loop for every sample."""


class DeskrollAgentLoop(AgentLoopBase):
    """Made by verl, one for each sample, out of `agent_loop_config_path`."""

    def __init__(self, *args: Any, config: str, tries: int = 3, **others: Any) -> None:
        """`config`: a file of settings as `deskroll run --config` takes them, without tasks, which are verl's rows.

        `tries`: how often an episode is run until one has a score; without one the sample fails.
        """
        super().__init__(*args, **others)
        self._file = config
        self._tries = tries

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        """One episode of the task in `extra_info`: an output, or a list of them where its turns do not all join."""
        task, folder = task_of(kwargs.get("extra_info") or {})
        episodes = await drive(_settings(self._file, task))
        for left in reversed(range(self._tries)):
            episode = episodes.begin(task, TRAIN, folder)
            turns = _Turns(self, sampling_params)
            try:
                await turns.play(episode)
                outcome = await episode.outcome()
            except EpisodeUnscored:
                if not left:
                    raise
            else:
                made = await asyncio.to_thread(self._outputs, episodes.attempt(outcome), outcome, turns.metrics)
                return made[0] if len(made) == 1 else self._several(made)
            finally:
                await episode.abandon()
        raise InputError(f"tries is {self._tries}; allowed: 1 and more")

    def _several(self, made: list[Any]) -> list[Any]:
        """The outputs of an episode whose turns do not all join, where the trainer takes as many."""
        if not self.config.trainer.get("use_v1"):
            raise InputError(
                f"the turns of {made[0].extra_fields['episode']} make {len(made)} samples, and this trainer takes one "
                "of each episode: set trainer.use_v1=True, or have conversations only grow (agent_options.max_images)"
            )
        return made

    def _outputs(self, attempt: AttemptReader, outcome: Episode, metrics: Mapping[str, float]) -> list[Any]:
        length = self.rollout_config.response_length
        found = samples(attempt, image_token=get_processor_token_id(self.processor, "image"))
        if not found:
            raise EpisodeUnscored(f"{outcome.key.task}: nothing was sampled for it that could be trained on")
        outputs = []
        for each in found:
            columns = VerlColumns.of(each, outcome, outcome.points or 0.0)
            images = [decode_image(attempt.image(name)) for name in columns.images]
            outputs.append(
                AgentLoopOutput(
                    prompt_ids=list(columns.prompt_ids),
                    response_ids=list(columns.response_ids[:length]),
                    response_mask=list(columns.response_mask[:length]),
                    response_logprobs=list(columns.response_logprobs[:length]),
                    multi_modal_data={"images": images} if images else {},
                    num_turns=columns.num_turns,
                    reward_score=columns.reward_score,
                    metrics=dict(metrics),
                    extra_fields=columns.extra_fields,
                )
            )
        return outputs


class _Turns:
    """The turns of one episode: what its agent asks, verl's servers answer."""

    def __init__(self, loop: DeskrollAgentLoop, sampling_params: Mapping[str, Any]) -> None:
        self.metrics: dict[str, float] = {"generate_sequences": 0.0, "tool_calls": 0.0}
        self._loop = loop
        self._params = {**sampling_params, "logprobs": True}
        self._session = uuid4().hex
        self._last: Sequence[bytes] = ()
        """The messages of the request before."""
        self._ids: list[int] = []
        self._mask: list[int] = []

    async def play(self, episode: DrivenEpisode) -> None:
        """Until the episode has ended."""
        since = time.perf_counter()
        while (request := await episode.request()) is not None:
            self.metrics["tool_calls"] += time.perf_counter() - since
            images = await self._extend(request)
            length = self._loop.rollout_config.response_length
            if len(self._mask) >= length:
                episode.refuse(ContextTooLong(f"the response has {len(self._mask)} of {length} tokens", _TOO_LONG))
            else:
                episode.answer(await self._sample(request, images))
            since = time.perf_counter()

    async def _extend(self, request: HandedRequest) -> list[Any]:
        """The prompt of a request: what was there and what is new, or all of it, where its past was rewritten.

        Returns the pictures that it holds.
        """
        messages = await asyncio.to_thread(read_messages, request.messages)
        schemas, images = tool_schemas(request.tools) or None, _images(messages)
        known = len(self._last)
        grown = 0 < known < len(messages) and tuple(request.messages[:known]) == tuple(self._last)
        if grown and messages[known]["role"] == "assistant":
            merged, self._mask, _ = await self._loop.ct_merge_context_msg(
                messages[: known + 1], messages, self._ids, self._mask, None, schemas
            )
            self._ids = merged.token_ids
        else:
            self._loop._assert_mm_supported(bool(images))
            self._ids = await self._loop.ct_build_initial_tokens(messages, schemas, images or None)
            self._mask = []
        self._last = request.messages
        return images

    async def _sample(self, request: HandedRequest, images: list[Any]) -> Completion:
        begun, prompt = time.perf_counter(), list(self._ids)
        output = await self._loop.server_manager.generate(
            request_id=self._session, prompt_ids=prompt, sampling_params=dict(self._params), image_data=images or None
        )
        self.metrics["generate_sequences"] += time.perf_counter() - begun
        ids = list(output.token_ids)
        merged, self._mask, _ = await self._loop.ct_merge_assistant_token(prompt, ids, self._mask, None, None)
        self._ids = merged.token_ids
        text, calls = await self._read(ids, request)
        return Completion(
            text=text,
            tool_calls=calls,
            finish_reason="length" if output.stop_reason == "length" else "stop",
            prompt_tokens=len(prompt),
            completion_tokens=len(ids),
            prompt_token_ids=tuple(prompt),
            token_ids=tuple(ids),
            logprobs=None if output.log_probs is None else tuple(map(float, output.log_probs)),
            version=(version := _version(output.extra_fields, "min_global_steps")),
            version_end="" if (end := _version(output.extra_fields, "max_global_steps")) == version else end,
        )

    async def _read(self, ids: list[int], request: HandedRequest) -> tuple[str, tuple[ToolRequest, ...]]:
        loop = self._loop
        if not request.tools:
            return loop.tokenizer.decode(ids, skip_special_tokens=True), ()
        parser = ToolParser.get_tool_parser(loop.rollout_config.multi_turn.format, loop.tokenizer)
        schemas = [OpenAIFunctionToolSchema.model_construct(**each) for each in tool_schemas(request.tools)]
        text, calls = await parser.extract_tool_calls(ids, schemas)
        for mark in loop.tokenizer.all_special_tokens:
            text = text.replace(mark, "")
        made = (ToolRequest(id=f"call_{n}", name=each.name, arguments=each.arguments) for n, each in enumerate(calls))
        return text, tuple(made)


def task_of(extra_info: Mapping[str, Any]) -> tuple[Task, str]:
    """The task of a row, and the folder of the files that it names."""
    if not isinstance(given := extra_info.get("task"), str):
        raise InputError("extra_info of a row holds no task; make the rows with  deskroll export RUN --to verl")
    try:
        return msgspec.json.decode(given, type=Task), str(extra_info.get("folder") or "")
    except msgspec.MsgspecError as error:
        raise InputError(f"extra_info.task of a row is no task: {error}") from None


def _settings(file: str, task: Task) -> RunConfig:
    if file not in _checked:
        _checked[file], _ = check_run(load(RunConfig, Path(file), []), [task], TRAIN)
    return _checked[file]


def _images(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    parts = (part for each in messages if isinstance(each["content"], list) for part in each["content"])
    return [part["image"] for part in parts if part["type"] == "image"]


def _version(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return "" if value is None else str(value)
