"""Messages between a run and the process of its trainer: records, each behind its length, over a pair of sockets.

One call at a time: each message down is answered by one up. The socket is also the lifeline: a trainer whose run is
gone reads its end, and ends too. Pictures and weights cross as names of files.
"""

from __future__ import annotations

from typing import Any

import msgspec

from deskroll.train.base import StepReport, TrainBatch, TrainerContext
from deskroll.types import Completion, Record, Sampling

LARGEST = 512 * 1024**2
"""Of a message down; those up are short."""


class Open(Record, frozen=True, tag="open"):
    """Become this trainer, and load a checkpoint; once."""

    trainer: str
    options: dict[str, Any]
    context: TrainerContext
    checkpoint: str
    state: str | None = None
    path: tuple[str, ...] = ()
    """Where the run finds modules, where the trainer runs in the same Python."""


class Step(Record, frozen=True, tag="step"):
    """Take a step."""

    batch: TrainBatch


class Save(Record, frozen=True, tag="save"):
    """Write the weights into a folder."""

    folder: str


class SaveState(Record, frozen=True, tag="save_state"):
    """Write what it goes on from into a folder."""

    folder: str


class Ask(Record, frozen=True, tag="ask"):
    """Load the model in a folder, and answer one prompt; no trainer is needed for that."""

    folder: str
    text: str
    sampling: Sampling
    images: tuple[str, ...] = ()


class Close(Record, frozen=True, tag="close"):
    """There is nothing more to do: end."""


class Done(Record, frozen=True, tag="done"):
    """It is done."""

    report: StepReport | None = None
    """What came of a step."""
    completion: Completion | None = None
    """What the model said."""


class Failed(Record, frozen=True, tag="failed"):
    """It is not."""

    message: str
    kind: str = ""
    """The name of the error, where it was raised for people to read."""
    trace: str = ""
    """Where it was raised, where it was not."""


Downward = Open | Step | Save | SaveState | Ask | Close
Upward = Done | Failed

encode = msgspec.msgpack.Encoder().encode
decode_downward = msgspec.msgpack.Decoder(Downward).decode
decode_upward = msgspec.msgpack.Decoder(Upward).decode
