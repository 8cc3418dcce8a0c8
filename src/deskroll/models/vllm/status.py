"""What a pool of model servers says of itself: small records, for people and programs alike."""

from __future__ import annotations

from deskroll.errors import plain
from deskroll.models.router.roster import EndpointState, EndpointView
from deskroll.models.vllm.gpus import Gpu
from deskroll.types import Record

_LONGEST = 2000


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

    @property
    def shown(self) -> str:
        """In a line."""
        where = f"; its log: {plain(self.log)}" if self.log else ""
        before = "; the one before it: " if self.log else ": "
        why = f"{before}{plain(self.last_error, _LONGEST)}" if self.last_error else ""
        return f"server {self.number}: {self.state}{where}{why}"


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

    @property
    def waits_for(self) -> str:
        """What requests wait for, in a line, where no server is up; empty: one is."""
        if any(view.state is not EndpointState.STARTING for view in self.endpoints):
            return ""
        each = "; ".join(replica.shown for replica in self.replicas)
        return f"no server of {plain(self.address)} is up yet, and requests wait for it: {each}"


class Reloaded(Record, frozen=True):
    """What came of a look for newer weights."""

    changed: bool
    checkpoint: CheckpointInfo
    went_back: bool = False
    """Whether what is served now is an older version than before."""
    up: int = 0
    """Servers that are up; where none is, those that start come up with these weights."""

    @property
    def shown(self) -> str:
        """In a line."""
        what = f"version {self.checkpoint.version or '-'} in {plain(self.checkpoint.path)}"
        is_so = "is served" if self.up else "is chosen, and no server is up yet (`deskroll models ls` says more)"
        back = " (an older one than before)" if self.went_back else ""
        return f"{'' if self.changed else 'nothing newer; '}{what}{back} {is_so}"
