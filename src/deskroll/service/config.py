"""ServiceConfig: what people set for a service: a run's settings, where its batches come from, and its models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator

from deskroll.config import Override, load
from deskroll.errors import ConfigError, InputError
from deskroll.host.listen import Listen
from deskroll.models.vllm.config import ModelPoolConfig
from deskroll.rollout.config import RunConfig
from deskroll.rollout.loading import check_run
from deskroll.tasks.batches import SourceSettings

PHASE = "service"
"""The phase of a service's episodes."""
OF_ONE_LIST = ("tasks", "tasks_root", "only", "limit")
"""Settings of a run over one list of tasks, which a service has not."""


class ServiceConfig(RunConfig):
    """All of a service. It goes on where it was left whenever it is started with the same output_dir and run_id."""

    run_id: str = "service"
    """The service's name: its folder is <output_dir>/<run_id>, in which a restart goes on."""
    source: SourceSettings = SourceSettings()
    """Where its batches come from; a text is the folder, the file or the address."""
    backoff_ms: int = Field(default=500, ge=1, le=3_600_000)
    """Where the source has nothing: the first wait before it is polled again, in milliseconds; then twice as long."""
    backoff_max_ms: int = Field(default=30_000, ge=1, le=86_400_000)
    """The longest such wait. A file that appears ends it at once."""
    models: ModelPoolConfig | None = None
    """Model servers of its own, which get the newest weights before each batch; none: `model` says what is asked."""
    max_batches: int | None = Field(default=None, ge=1)
    """It ends after so many batches, over all of its starts; none: it goes on until it is stopped."""
    listen: str = ""
    """HOST:PORT on which consumers ask for groups, with the token of DESKROLL_TOKEN; empty: the run's socket alone."""

    @field_validator("run_id")
    @classmethod
    def _check_named(cls, value: str) -> str:
        if not value:
            raise ValueError("a service has a name, so that a restart finds it")
        return value

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, value: str) -> str:
        try:
            if value and Listen.parse(value).is_unix:
                raise ValueError("write HOST:PORT; on its own socket the service answers in any case")
        except InputError as error:
            raise ValueError(str(error)) from None
        return value

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        for name in OF_ONE_LIST:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} is for a run over one list of tasks; a service has its tasks from `source`")
        if self.models is not None:
            named = [name for name in ("base_url", "endpoints", "pool") if getattr(self.model, name)]
            if named:
                raise ValueError(f"model.{named[0]} and models: only one of them says where the model is")
        if self.backoff_max_ms < self.backoff_ms:
            raise ValueError(f"backoff_max_ms is {self.backoff_max_ms}, less than backoff_ms ({self.backoff_ms})")
        return self


def load_service(path: Path | None, overrides: Sequence[Override]) -> ServiceConfig:
    """The settings of a service, checked as far as that goes without any tasks."""
    config = load(ServiceConfig, path, overrides)
    if not config.source.at.strip():
        raise ConfigError("source is empty; name a folder, a file {type: [ids]}, or an address: --set source=inbox")
    if "://" in config.output_dir:
        raise ConfigError(
            f"output_dir is {config.output_dir}: a service keeps its batches and its consumers in files that grow, "
            "which no object store has; name a folder"
        )
    return check_run(config, [], PHASE)[0]
