"""Training as it is written down: the records of `train.jsonl`, one line for each step and each evaluation.

Whoever writes them is `train/log.py`; reports read them here.
"""

from __future__ import annotations

import msgspec

from deskroll.errors import StoreError
from deskroll.store.paths import TRAIN_LOG
from deskroll.store.storage import Storage
from deskroll.types import Record

TRAIN, BASELINE, EVAL = "train", "baseline", "eval"
"""The phases of a training run: what is trained on, the evaluation before the first step, those after steps."""


class StepReport(Record, frozen=True):
    """What came of a step; None: this trainer does not tell."""

    loss: float | None = None
    kl: float | None = None
    """Against the weights of the start, a token."""
    entropy: float | None = None
    """Of the distribution that is sampled from, a token."""
    gradient_norm: float | None = None
    """Before clipping; of several substeps the mean."""
    clipped_share: float | None = None
    """Of tokens whose ratio lay outside of the bounds."""
    logprob_gap: float | None = None
    """Mean difference between what the server told and what the trainer computes, of samples of the very version that
    the step is taken on; None: there were none."""
    tokens: int = 0
    """Of all sequences, prompts included."""
    sampled_tokens: int = 0
    """Of those, what counts in the loss."""


class UsedGroup(Record, frozen=True):
    """A group that a step was taken on."""

    round: int
    task: str
    attempts: tuple[int, ...]
    """Of each sample, the attempt that counts."""
    score: float
    """The mean of its members."""
    lag: int


class StepRecord(Record, frozen=True, tag_field="type", tag="step", omit_defaults=False):
    """One step."""

    step: int
    """Also the version of the weights that came of it."""
    at: float
    groups: tuple[UsedGroup, ...]
    withheld: tuple[tuple[int, str], ...]
    """Rounds and tasks of groups since the last step that were too old."""
    no_signal: tuple[tuple[int, str], ...]
    """Those whose members all scored the same."""
    failed: tuple[tuple[int, str], ...]
    """Those with too few scored members."""
    reward: float
    """The mean over all members that were trained on."""
    lag_p50: float
    lag_p95: float
    lag_max: int
    sequences: int
    report: StepReport
    seconds: dict[str, float]
    """refresh (of the step before), generate (until there were groups enough), hold (for an evaluation to end), train,
    save."""
    served: int
    """The version that was served meanwhile: older than `step` - 1 where servers did not take that one."""


class EvalRecord(Record, frozen=True, tag_field="type", tag="evaluation", omit_defaults=False):
    """One evaluation, the baseline included."""

    phase: str
    step: int
    at: float
    episodes: int
    scored: int
    successes: int
    mean_score: float | None
    versions: tuple[str, ...]
    """Of the weights that answered."""
    seconds: float


TrainRecord = StepRecord | EvalRecord
_decoder = msgspec.json.Decoder(TrainRecord)


def read_lines(data: bytes, name: str) -> list[TrainRecord]:
    """The records of whole lines; StoreError with the number of a line that cannot be read."""
    records = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            records.append(_decoder.decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise StoreError(f"{name}, line {number}: cannot be read ({error}); restore the file") from None
    return records


def read_training(storage: Storage) -> list[TrainRecord]:
    """What a run's folder holds of it; a line that was being written when its writer died is left out."""
    if not storage.exists(TRAIN_LOG):
        return []
    whole, newline, _ = storage.read(TRAIN_LOG).rpartition(b"\n")
    return read_lines(whole + newline, storage.shown(TRAIN_LOG))
