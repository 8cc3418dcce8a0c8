"""VllmSettings: what a scripted server that stands in for vLLM serves, and what goes wrong with it on request."""

from __future__ import annotations

import enum
from pathlib import Path

from pydantic import Field

from deskroll.config import Settings
from deskroll.models.scripted.script import Seconds


class Starting(enum.StrEnum):
    """How a server behaves that is not up yet."""

    REFUSES = "refuses"
    """Connections are refused, as with vLLM."""
    UNAVAILABLE = "503"
    """Everything is answered with 503, as behind a proxy."""


class Reloading(enum.StrEnum):
    """What comes of `reload_weights`."""

    WORKS = "works"
    FAILS = "fails"
    """500, and no weights are left: the next request is a 500 as well, and ends the server."""
    NOTHING = "nothing"
    """200, and the old weights go on."""


class Trouble(Settings):
    """What goes wrong with a server, until it is given another one of these."""

    starting: Starting = Starting.REFUSES
    """How it behaves while it starts."""
    start_s: Seconds = 0.0
    """How long it takes to start, in seconds."""
    reload: Reloading = Reloading.WORKS
    """What comes of a reload."""
    reload_s: Seconds = 0.0
    """How long a reload takes, in seconds."""
    reset_fails: bool = False
    """Whether `/reset_prefix_cache` says `{"success": false}` whatever it is asked."""
    silent: bool = False
    """Whether it takes connections and requests and answers none, not even `/health`, while this holds."""


class VllmSettings(Settings):
    """A scripted server with vLLM's own endpoints, weights and queue."""

    name: str = Field(default="scripted", min_length=1)
    """The model, as it is served; any other name that is not an adapter's is a 404."""
    weights: Path | None = None
    """The folder with the weights that it starts with (`*.safetensors`); None: weights that shift nothing."""
    max_running: int = Field(default=256, ge=1)
    """Requests that run at a time (vLLM's --max-num-seqs); others wait."""
    trouble: Trouble = Trouble()
    """What goes wrong from the beginning."""
