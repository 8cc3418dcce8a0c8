"""A run as Parquet files: episodes.parquet, steps.parquet, messages.parquet and, where asked for, screens.parquet.

Rows of all four are joined by phase, round, task_id, sample and attempt. Columns are typed; times are in seconds. Token
ids, log-probabilities and versions are there where the run holds them. Rows are written as they are read: what is in
memory at a time is one attempt and a few thousand rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from deskroll.errors import MissingDependency, StoreError
from deskroll.export.episodes import Chosen, Exported, Tell, check_whole, screens_of
from deskroll.export.output import Output, writing
from deskroll.store import AttemptReader, paths
from deskroll.types import Completion, Episode, Stage, Step

try:
    import pyarrow as pa
    from pyarrow import parquet
except ImportError as error:
    raise MissingDependency("Parquet files need pyarrow: pip install 'deskroll[parquet]'") from error

Row = dict[str, Any]
_ROWS, _BYTES = 4096, 32_000_000
"""Rows, and bytes of pictures and texts in them, that are written together."""
_KEY = {"phase": pa.string(), "round": pa.int32(), "task_id": pa.string(), "sample": pa.int32(), "attempt": pa.int32()}
_SECONDS = {f"{stage.value}_s": pa.float64() for stage in Stage}
_TIME = pa.timestamp("us", tz="UTC")
_TEXTS = pa.list_(pa.string())
_SAMPLING = {
    "temperature": pa.float64(), "top_p": pa.float64(), "top_k": pa.int64(), "max_tokens": pa.int64(),
    "stop_texts": _TEXTS, "seed": pa.int64(), "logprobs_mode": pa.string(),
}  # fmt: skip

EPISODES = pa.schema({
    "run_id": pa.string(), **_KEY, "domain": pa.string(), "model": pa.string(), "versions": _TEXTS,
    "joinable": pa.int32(), "joined": pa.int32(),
    "score": pa.float64(), "reason": pa.string(), "found": pa.string(), "expected": pa.string(), "stop": pa.string(),
    "failure_class": pa.string(),
    "failure_kind": pa.string(), "failure_message": pa.string(), "answer": pa.string(), "steps": pa.int32(),
    "actions": pa.int32(), "prompt_tokens": pa.int64(), "completion_tokens": pa.int64(), "calls": pa.int32(),
    "cost_usd": pa.float64(), "desktop": pa.string(), "started_at": _TIME, "ended_at": _TIME, **_SECONDS,
    "folder": pa.string(),
})  # fmt: skip
STEPS = pa.schema({
    **_KEY, "step": pa.int32(), "actions": _TEXTS, "thought": pa.string(), "notes": _TEXTS, "results": _TEXTS,
    "screen": pa.string(), "settled": pa.string(), **_SECONDS, "text": pa.string(), "reasoning": pa.string(),
    "tool_calls": _TEXTS, "finish_reason": pa.string(), "model": pa.string(), "version": pa.string(),
    "version_end": pa.string(), "fingerprint": pa.string(), "endpoint": pa.string(), **_SAMPLING,
    "prompt_tokens": pa.int64(), "completion_tokens": pa.int64(), "cost_usd": pa.float64(), "tries": pa.int32(),
    "prompt_token_ids": pa.list_(pa.int64()), "token_ids": pa.list_(pa.int64()), "logprobs": pa.list_(pa.float64()),
    "sent_messages": pa.int32(), "sent_withheld": pa.list_(pa.int32()),
})  # fmt: skip
MESSAGES = pa.schema({**_KEY, "message": pa.int32(), "role": pa.string(), "json": pa.string()})
SCREENS = pa.schema({**_KEY, "screen": pa.string(), "image": pa.binary()})


class _Role(msgspec.Struct):
    role: str = ""


def export_tables(chosen: Chosen, output: Output, tell: Tell, *, screens: bool = False) -> Exported:
    """Write the tables; they appear when all of them are whole."""
    schemas = {"episodes": EPISODES, "steps": STEPS, "messages": MESSAGES} | ({"screens": SCREENS} if screens else {})
    names = {name: f"{name}.parquet" for name in schemas}
    problems: list[str] = []
    with ExitStack() as stack:
        tables = {name: stack.enter_context(TableFile(output.part(names[name]), schemas[name])) for name in schemas}
        for number, (episode, attempt) in enumerate(chosen):
            tell(number, len(chosen.episodes))
            tables["episodes"].add(_episode_row(chosen.run.info.run_id, episode))
            try:
                check_whole(episode, attempt)
                # Read whole before any row is written: of an attempt that is damaged there is no half.
                rows = list(_attempt_rows(episode, attempt, screens=screens))
            except StoreError as error:
                problems.append(str(error))
                continue
            for name, row in rows:
                tables[name].add(row)
    for name in names.values():
        output.publish(name)
    tell(len(chosen.episodes), len(chosen.episodes))
    return Exported(
        run_id=chosen.run.info.run_id, to="parquet", output=str(output.path), episodes=len(chosen.episodes),
        written=len(chosen.episodes) - len(problems), problems=tuple(problems),
    )  # fmt: skip


class TableFile:
    """One file, written a few thousand rows at a time."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema
        self._rows: list[Row] = []
        self._size = 0

    def __enter__(self) -> TableFile:
        with writing(self._path):
            self._writer = parquet.ParquetWriter(self._path, self._schema, compression="zstd")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with writing(self._path):
            if kind is None:
                self._flush()
            self._writer.close()

    def add(self, row: Row) -> None:
        """One more row."""
        self._rows.append(row)
        self._size += sum(len(value) for value in row.values() if isinstance(value, str | bytes | list))
        if len(self._rows) >= _ROWS or self._size >= _BYTES:
            with writing(self._path):
                self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
            self._rows, self._size = [], 0


def _key(episode: Episode) -> Row:
    key = episode.key
    return {
        "phase": _text(key.phase), "round": key.round, "task_id": _text(key.task), "sample": key.sample,
        "attempt": episode.attempt,
    }  # fmt: skip


def _episode_row(run_id: str, episode: Episode) -> Row:
    failure, usage = episode.failure, episode.usage
    return {
        "run_id": run_id, **_key(episode), "domain": _text(episode.domain), "model": _text(episode.model),
        "versions": [_text(each) for each in episode.versions], "joinable": episode.joinable,
        "joined": episode.joined, "score": episode.score.value,
        "reason": _text(episode.score.reason), "found": _maybe(episode.score.found),
        "expected": _maybe(episode.score.expected), "stop": episode.stop.value,
        "failure_class": failure.failure_class.value if failure else None,
        "failure_kind": _text(failure.kind) if failure else None,
        "failure_message": _text(failure.message) if failure else None,
        "answer": _maybe(episode.answer),
        "steps": episode.steps, "actions": episode.actions, "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens, "calls": usage.calls, "cost_usd": usage.cost_usd,
        "desktop": episode.desktop, "started_at": _micros(episode.started_at), "ended_at": _micros(episode.ended_at),
        **_seconds(episode.seconds), "folder": paths.attempt_folder(episode.key, episode.attempt),
    }  # fmt: skip


def _attempt_rows(episode: Episode, attempt: AttemptReader, *, screens: bool) -> Iterator[tuple[str, Row]]:
    key = _key(episode)
    for step in attempt.steps():
        yield "steps", key | _step_row(step, attempt.folder)
    for number, message in enumerate(attempt.messages()):
        yield "messages", key | {"message": number, "role": _role(message), "json": message.decode("utf-8", "replace")}
    for name in screens_of(attempt.files()) if screens else ():
        yield "screens", key | {"screen": f"{attempt.folder}/{name}", "image": attempt.image(name)}


def _role(message: bytes) -> str | None:
    try:
        return msgspec.json.decode(message, type=_Role).role
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None  # an agent may keep whatever it likes


def _step_row(step: Step, folder: str) -> Row:
    row: Row = {
        "step": step.index, "actions": [msgspec.json.encode(each).decode() for each in step.actions],
        "thought": _text(step.thought), "notes": [_text(each) for each in step.notes],
        "results": [_text(each) for each in step.results],
        "screen": f"{folder}/{step.screen}" if step.screen else None, "settled": step.settled or None,
        **_seconds(step.seconds),
    }  # fmt: skip
    if (sent := step.sent) is not None:
        row |= {"sent_messages": sent.messages, "sent_withheld": list(sent.withheld)}
    if (said := step.completion) is not None:
        row |= {
            "text": _text(said.text), "reasoning": _text(said.reasoning),
            "tool_calls": [msgspec.json.encode(each).decode() for each in said.tool_calls],
            "finish_reason": _text(said.finish_reason), "model": _text(said.model), "version": _text(said.version),
            "version_end": _text(said.version_end), "fingerprint": _text(said.fingerprint),
            "endpoint": _text(said.endpoint), **_sampling_row(said),
            "prompt_tokens": said.prompt_tokens, "completion_tokens": said.completion_tokens,
            "cost_usd": said.cost_usd, "tries": said.tries, "prompt_token_ids": _list(said.prompt_token_ids),
            "token_ids": _list(said.token_ids), "logprobs": _list(said.logprobs),
        }  # fmt: skip
    return row


def _sampling_row(said: Completion) -> Row:
    """Of answers that were stored before there was `sampling`, the seed alone is known."""
    if (sampling := said.sampling) is None:
        return {"seed": _whole(said.seed)}
    return {
        "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": _whole(sampling.top_k),
        "max_tokens": _whole(sampling.max_tokens), "stop_texts": [_text(each) for each in sampling.stop],
        "seed": _whole(sampling.seed), "logprobs_mode": sampling.logprobs_mode,
    }  # fmt: skip


def _whole(number: int | None) -> int | None:
    """None also for what no column of numbers can hold: people may ask servers for anything."""
    return number if number is None or -(2**63) <= number < 2**63 else None


def _seconds(seconds: Mapping[str, float]) -> Row:
    return {f"{stage.value}_s": seconds.get(stage.value) for stage in Stage}


def _list(values: tuple[int, ...] | tuple[float, ...] | None) -> list[int | float] | None:
    return None if values is None else list(values)


def _micros(at: float) -> int:
    return round(at * 1_000_000)


def _maybe(text: str | None) -> str | None:
    return None if text is None else _text(text)


def _text(text: str) -> str:
    """Half characters, which no file can hold, are replaced."""
    return text if text.isascii() else text.encode(errors="replace").decode()
