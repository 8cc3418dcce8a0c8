"""What a pool of model servers says of itself: small records, for people and programs alike."""

from __future__ import annotations

from deskroll.models.router.roster import EndpointView
from deskroll.models.vllm.gpus import Gpu
from deskroll.types import Record


class CheckpointInfo(Record, frozen=True):
    """The weights that are served."""

    path: str
    version: str = ""
    """Empty: a folder without a number, as that which the pool was started on may be."""
    kind: str = "full"
    refused: str = ""
    """Why newer weights were refused last; empty: none were."""


class ReplicaStatus(Record, frozen=True):
    """One of the pool's own servers."""

    number: int
    url: str
    """Empty: there is none at this moment."""
    state: str
    """`starting`, `up`, `given up` or `removed`."""
    deaths: int = 0
    """How often it has died."""
    last_error: str = ""
    log: str = ""


class PoolStatus(Record, frozen=True):
    """All of it."""

    address: str
    """What runs write as model.pool."""
    model: str
    checkpoint: CheckpointInfo
    replicas: tuple[ReplicaStatus, ...] = ()
    endpoints: tuple[EndpointView, ...] = ()
    waiting: int = 0
    """Requests without a ticket."""
    gpus: tuple[Gpu, ...] = ()


class Reloaded(Record, frozen=True):
    """What came of a look for newer weights."""

    changed: bool
    checkpoint: CheckpointInfo
    went_back: bool = False
    """Whether what is served now is an older version than before."""
