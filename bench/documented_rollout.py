"""The rollout as the documented design has it, re-created; what bench/engine.py compares ours with.

`num_rollouts` worker processes, each with a synchronous client of the `openai` package. Tasks come from a
`multiprocessing.Manager().Queue()`, results go into a list of the same manager; a worker runs one task at a time and
writes its conversation to a JSON file in the end. Nothing is synced to the disk, nothing is retried.

Guarantees: the conversations are those of every other contender. Imports, forks and the making of clients are over
before anything is measured, and every worker is connected and has had two turns by then: the work alone is measured.

Also here: what all contenders of that benchmark share (`Job`, the messages, and how they wait to be measured).
"""

from __future__ import annotations

import base64
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from multiprocessing.managers import SyncManager
from multiprocessing.synchronize import Event, Semaphore
from pathlib import Path
from typing import Any, NamedTuple

from deskroll.envs.math import evaluate
from engine_screens import screen

FORK = multiprocessing.get_context("fork")
"""What the design has on Linux; nothing here runs threads or a loop when it forks."""
MODEL = "bench"
_SCREEN_NOW = "The screen now:"
_WITHHELD = {"type": "text", "text": "[image withheld]"}
Message = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """What a contender is to do; it travels as JSON."""

    url: str
    in_flight: int
    episodes: int
    warm_up: int
    """Episodes that are run before anything is measured."""
    screens: bool
    """Whether each turn begins with a screen, the last of which the model is sent."""
    folder: str
    """On a disk, empty, for what is to be stored."""
    system: str
    tools: list[dict[str, Any]]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        return cls(**json.loads(text))


# --- how a contender is measured: it says when it is ready and when it is through, and is told to go on ---


def await_go() -> None:
    """Everything is prepared: from here on it counts."""
    print("ready", flush=True)
    if not sys.stdin.readline():
        raise SystemExit("whoever measures is gone")


def tell_end(seconds: float) -> None:
    """It is all done, and took so long; processes stay until they have been looked at."""
    print(json.dumps({"seconds": seconds}), flush=True)
    sys.stdin.readline()


# --- the conversation, the same for all ---


def question(episode: int) -> str:
    return f"Question {episode}: what is 6 * 7?"


def opening(job: Job, episode: int) -> list[Message]:
    first: Message = {"role": "user", "content": question(episode)}
    if job.screens:
        first = _pictured(f"{question(episode)}\n\n{_SCREEN_NOW}", screen(episode, 0))
    return [{"role": "system", "content": job.system}, first]


def results(job: Job, episode: int, turn: int, call_id: str, result: str) -> list[Message]:
    """What follows a call of that turn."""
    told: Message = {"role": "tool", "tool_call_id": call_id, "content": result}
    return [told, _pictured(_SCREEN_NOW, screen(episode, turn + 1))] if job.screens else [told]


def _pictured(text: str, image: bytes) -> Message:
    url = f"data:image/png;base64,{base64.b64encode(image).decode()}"
    return {
        "role": "user",
        "content": [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}],
    }


def with_last_image(messages: list[Message]) -> list[Message]:
    """The messages with every image but the last one withheld."""
    pictured = [number for number, each in enumerate(messages) if isinstance(each["content"], list)]
    sent = list(messages)
    for number in pictured[:-1]:
        sent[number] = {"role": "user", "content": [messages[number]["content"][0], _WITHHELD]}
    return sent


def calculator(arguments: str) -> str:
    return "\n".join(f"{text} = {evaluate(text)}" for text in json.loads(arguments)["expressions"])


# --- the design ---


class Shared(NamedTuple):
    """What all workers have in common."""

    tasks: Any
    """Proxy of the manager's queue."""
    results: Any
    """Proxy of the manager's list."""
    go: Event
    idle: Semaphore
    """Released by each worker when it is ready, and when it has found no more tasks."""
    leave: Event


def run_parallel_rollout(job: Job) -> None:
    from openai import OpenAI  # noqa: PLC0415  (other contenders import this module too)

    def client() -> OpenAI:
        return OpenAI(base_url=f"{job.url}/v1", api_key="none")

    with client() as first:  # imports and builds what the first call needs, once: every worker has it by the fork
        _run_conversation(job, first.chat.completions.create, 0)
    create = client().chat.completions.create  # unconnected yet, and every worker's own by the fork
    with SyncManager(ctx=FORK) as manager:
        shared = Shared(manager.Queue(), manager.list(), FORK.Event(), FORK.Semaphore(0), FORK.Event())
        workers = [
            FORK.Process(target=run_rollout_worker, args=(job, shared, create), daemon=True)
            for _ in range(job.in_flight)
        ]
        for worker in workers:
            worker.start()
        _everybody(job, shared)
        for episode in range(job.episodes):
            shared.tasks.put({"id": f"t{episode}", "question": question(episode), "answer": "42", "number": episode})
        for _ in workers:
            shared.tasks.put(None)
        await_go()
        began = time.perf_counter()
        shared.go.set()
        _everybody(job, shared)
        seconds = time.perf_counter() - began
        scores = [each["answer"] == "42" for each in list(shared.results)]
        if scores != [True] * job.episodes:
            raise SystemExit(f"{sum(scores)} of {job.episodes} answers are right")
        tell_end(seconds)
        shared.leave.set()
        for worker in workers:
            worker.join()


def _everybody(job: Job, shared: Shared) -> None:
    for _ in range(job.in_flight):
        shared.idle.acquire()


def run_rollout_worker(job: Job, shared: Shared, create: Callable[..., Any]) -> None:
    _run_conversation(job, create, 0, max_turns=2)
    shared.idle.release()
    shared.go.wait()
    while (task := shared.tasks.get()) is not None:
        shared.results.append(_run_agent_task(job, create, task))
    shared.idle.release()
    shared.leave.wait()
    os._exit(0)  # nothing is measured any more: no need for an orderly end of hundreds of interpreters


def _run_agent_task(job: Job, create: Callable[..., Any], task: dict[str, Any]) -> dict[str, Any]:
    messages = _run_conversation(job, create, task["number"])
    answer = messages[-1]["content"]
    _save_conversation_log(Path(job.folder, task["id"]), task, messages)
    return {"task_id": task["id"], "question": task.get("question"), "answer": answer, "success": True, "error": None}


def _run_conversation(job: Job, create: Callable[..., Any], episode: int, max_turns: int = 50) -> list[Message]:
    messages = opening(job, episode)
    for turn in range(max_turns):
        sent = with_last_image(messages) if job.screens else messages
        reply = create(model=MODEL, messages=sent, tools=job.tools).choices[0].message
        said: Message = {"role": "assistant", "content": reply.content}
        messages.append(said)
        if not reply.tool_calls:
            break
        said["tool_calls"] = []
        for call in reply.tool_calls:
            function = {"name": call.function.name, "arguments": call.function.arguments}
            said["tool_calls"].append({"id": call.id, "type": "function", "function": function})
            messages += results(job, episode, turn, call.id, calculator(call.function.arguments))
    return messages


def _save_conversation_log(folder: Path, task: dict[str, Any], messages: list[Message]) -> None:
    folder.mkdir(parents=True)
    with (folder / "conversation.json").open("w") as file:
        json.dump({"task": task, "messages": messages}, file, ensure_ascii=False, indent=2)


if __name__ == "__main__":
    run_parallel_rollout(Job.from_json(sys.argv[1]))
