"""The process of a trainer: does what it is told over the socket whose number it is given, one thing after the other.

    python -m deskroll.train.child FD

Nothing heavy is imported before it is told which trainer to be. A thread of its own reads the socket: when the run is
gone, this process and all that it has started are killed at once, whatever they are doing.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
from pathlib import Path

import msgspec

from deskroll.errors import DeskrollError, TrainerError, plain, trace_of
from deskroll.host.family import find_marked
from deskroll.plugins import load_plugin
from deskroll.train.base import Trainer, check_batch
from deskroll.train.environment import MARK
from deskroll.train.wire import (
    LARGEST,
    Ask,
    Close,
    Done,
    Downward,
    Failed,
    Open,
    Save,
    SaveState,
    Step,
    Upward,
    decode_downward,
    encode,
)

_LONGEST_MESSAGE = 20_000


def main() -> None:
    """Serve until it is told to close."""
    link = socket.socket(fileno=int(sys.argv[1]))
    heard: queue.SimpleQueue[Downward] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(link, heard), daemon=True).start()
    trainer: Trainer | None = None
    while True:
        message = heard.get()
        answer: Upward
        try:
            if isinstance(message, Open):
                trainer = _make(message)
            answer = _answer(message) if isinstance(message, Ask) else _do(trainer, message)
        except Exception as error:  # noqa: BLE001  (the trainer's own code: told to whoever asked)
            answer = _failed(error)
        data = encode(answer)
        link.sendall(len(data).to_bytes(4, "big") + data)
        if isinstance(message, Close):
            return


def _make(order: Open) -> Trainer:
    sys.path += [folder for folder in order.path if folder not in sys.path]
    kind = load_plugin("trainer", order.trainer, Trainer)
    return kind(kind.read_options(order.options, f"options of trainer {order.trainer}"), order.context)


def _answer(question: Ask) -> Upward:
    from deskroll.train.grpo.ask import answer  # noqa: PLC0415  (imports torch)

    return Done(completion=answer(question))


def _do(trainer: Trainer | None, message: Downward) -> Upward:
    if trainer is None:
        raise TrainerError("it has not been opened")
    match message:
        case Open():
            trainer.open(Path(message.checkpoint), None if message.state is None else Path(message.state))
        case Step():
            check_batch(message.batch)
            return Done(report=trainer.step(message.batch))
        case Save():
            trainer.save(Path(message.folder))
        case SaveState():
            trainer.save_state(Path(message.folder))
        case Close():
            trainer.close()
    return Done()


def _failed(error: Exception) -> Failed:
    if isinstance(error, DeskrollError):
        message = plain(str(error), _LONGEST_MESSAGE, keep="\n")
        return Failed(message=message, kind=type(error).__name__, trace=trace_of(error)[-_LONGEST_MESSAGE:])
    said = TrainerError(f"{type(error).__name__}: {error}")
    said.unforeseen = error
    trace = trace_of(said)
    print(trace, file=sys.stderr, flush=True)  # noqa: T201  (its log)
    return Failed(message=plain(str(said), _LONGEST_MESSAGE, keep="\n"), trace=trace[-_LONGEST_MESSAGE:])


def _listen(link: socket.socket, heard: queue.SimpleQueue[Downward]) -> None:
    """Read messages until there can be none any more."""
    try:
        with link.makefile("rb") as stream:
            while len(head := stream.read(4)) == 4:
                size = int.from_bytes(head, "big")
                if size > LARGEST or len(data := stream.read(size)) < size:
                    break
                heard.put(decode_downward(data))
    except (OSError, msgspec.MsgspecError) as error:
        print(f"the run cannot be understood: {error}", file=sys.stderr, flush=True)  # noqa: T201  (its log)
    for pid in find_marked(f"{MARK}={os.environ.get(MARK)}"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    main()
