"""EndpointSettings: one of the servers that answer for a model, as people write it."""

from __future__ import annotations

from pydantic import Field

from deskroll.config import Settings


class EndpointSettings(Settings):
    """One server that answers for the model."""

    url: str = Field(min_length=1)
    """Its address, like model.base_url, or unix:PATH."""
    name: str = ""
    """What the model is called there; empty: as model.name says."""
    max_in_flight: int | None = Field(default=None, ge=1)
    """The most requests that it has open at a time; None: learnt from its answers, from 16 on."""
    key_env: str = ""
    """The environment variable that holds its key; empty: the model's own key."""
