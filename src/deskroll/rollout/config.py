"""RunConfig: what people set for a run: a file, everyday flags, `--set a.b=c`. Every field has a default."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from deskroll.config import Settings
from deskroll.desktops.settings import PoolSettings
from deskroll.errors import InputError
from deskroll.host.home import expand_home
from deskroll.registry import Registry
from deskroll.rollout.redaction import is_masked
from deskroll.rollout.spec import EpisodeLimits, EpisodeSpec

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
FREE = frozenset({
    "num_rollouts", "max_concurrent_rollouts", "reserved", "num_vms", "min_vms", "pool", "pool_wait",
    "resource_timeout", "retries", "policy", "backend", "backend_options", "workers", "worker_memory_mb", "hang_after",
    "isolated_workers", "watchdog", "metrics", "events", "telemetry", "output_dir", "run_id", "tasks", "tasks_root",
    "only", "limit",
})  # fmt: skip
"""Settings that decide how fast a run is and not what comes out of it, and those that say which tasks there are: a
resume may change them. It compares the tasks themselves."""
FREE_MODEL = frozenset({
    "base_url", "api_key", "timeout", "connect_timeout", "retries", "backoff", "backoff_max", "max_in_flight",
    "endpoints", "pool", "server_wait", "affinity_margin",
    "max_answer_mb", "price", "exact",
})  # fmt: skip


FREE_LIMITS = frozenset({"run_cost_usd", "run_time", "close_timeout"})


class RunLimits(EpisodeLimits):
    """How much one attempt may use up, and the whole run; times are in seconds."""

    run_cost_usd: float | None = Field(default=None, gt=0)
    """Cost of the whole run, over all of its starts; when it is used up, nothing more is started."""
    run_time: float | None = Field(default=None, gt=0)
    """Time that the whole run may be under way, over all of its starts; the same."""


class WatchdogSettings(Settings):
    """When a stage of an episode counts as stalled. Times are in seconds."""

    notice_after: float = Field(default=15.0, gt=0)
    """A desktop or a model server that has not answered for so long is named by `deskroll status`."""
    stalled_after: float = Field(default=60.0, gt=0)
    """A stage is stalled after so long, or ten times its usual time, whichever is more: it is dumped and reported."""
    act_timeout: float = Field(default=300.0, gt=0)
    """The longest that actions may take before the attempt is stopped and made again."""


class EventSettings(Settings):
    """What is told of what happens."""

    enabled: bool = True
    """Whether workers tell it; if not, nobody sees what episodes do, and the watchdog has nothing to go by."""
    file_mb: float = Field(default=100.0, ge=0)
    """The most that events.jsonl in the run's folder takes, its older half included; 0: there is none."""


class TelemetrySettings(Settings):
    """Where traces are sent."""

    otlp: str = ""
    """Address of a collector that takes OTLP over HTTP, e.g. http://127.0.0.1:4318; empty: nowhere."""


class OnlySettings(Settings):
    """Which of the tasks; an empty list is no condition."""

    domains: tuple[str, ...] = ()
    """Only tasks of this domain; of one of these, where there are several."""
    ids: tuple[str, ...] = ()
    """Only this task; the first characters of its id are enough."""
    apps: tuple[str, ...] = ()
    """Only tasks that name this app."""


class WorkerSettings(Settings):
    """How worker processes are kept."""

    workers: int | None = Field(default=None, ge=1, le=1024)
    """How many worker processes; none: one a core."""
    worker_memory_mb: float = Field(default=4096.0, ge=64)
    """A worker that has more memory than this for itself is replaced, and what it ran is run again."""
    hang_after: float = Field(default=30.0, ge=2)
    """A worker of which nothing was heard for so long, in seconds, is replaced; while it starts, not before 90 s."""
    isolated_workers: int = Field(default=32, ge=1, le=1024)
    """The most attempts that have a worker of their own at a time, because their last one died."""


class Resources(WorkerSettings, PoolSettings):
    """What a runtime has, and how it is shared: permits, desktops, worker processes, the watchdog."""

    num_rollouts: int = Field(default=5, ge=1, le=1_000_000)
    """The most episodes in flight."""
    max_concurrent_rollouts: int | None = Field(default=None, ge=1)
    """The most groups in flight; none: as many as episodes."""
    reserved: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    """Episodes in flight that are kept for a phase, by its name; and as many groups as these come to."""
    provider: str = "auto"
    """What kind of desktops: auto, or one that `deskroll plugins ls` shows."""
    provider_options: dict[str, str] = Field(default_factory=dict)
    """Options of the provider."""
    pool: str = ""
    """A pool that is served elsewhere (unix:PATH or HOST:PORT), instead of one of its own."""
    pool_wait: float = Field(default=600.0, ge=0)
    """How long the run waits for such a pool where it serves nobody any more, in seconds; then it stops."""
    watchdog: WatchdogSettings = WatchdogSettings()
    events: EventSettings = EventSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    backend: str = "process"
    """Where episodes run: worker processes (`process`), this one (`inline`, for debugging), or a plug-in's."""
    backend_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the backend, where it has such."""
    metrics: str = ""
    """HOST:PORT on which /metrics answers (Prometheus), with the token of DESKROLL_TOKEN; empty: not there."""

    @field_validator("backend")
    @classmethod
    def _check_backend(cls, value: str) -> str:
        try:
            Registry().find("backend", value)
        except InputError as error:
            raise ValueError(str(error)) from None
        return value

    @field_validator("provider_options", mode="before")
    @classmethod
    def _as_written(cls, value: object) -> object:
        """Options of a provider are texts; a number or true/false in a file is meant as one."""
        if not isinstance(value, dict):
            return value
        return {name: _option(each) for name, each in value.items()}

    @model_validator(mode="after")
    def _check_reserved(self) -> Self:
        if (reserved := sum(self.reserved.values())) > self.num_rollouts:
            raise ValueError(
                f"reserved asks for {reserved}, and num_rollouts is {self.num_rollouts}: reserve fewer, or raise it"
            )
        return self


class RunConfig(Resources, EpisodeSpec):
    """All of a run: one job over a list of tasks, with a runtime of its own."""

    tasks: str = ""
    """The tasks: a file (JSON or JSONL), a suite file or a folder of OSWorld's, or suite:NAME."""
    tasks_root: str = ""
    """The folder that holds the tasks of a suite file; empty: `examples` beside it."""
    only: OnlySettings = OnlySettings()
    """Which of the tasks; those that fit all of it."""
    limit: int | None = Field(default=None, ge=1)
    """Only so many tasks: the first ones."""
    group_size: int = Field(default=1, ge=1, le=10_000)
    """Episodes of each task."""
    output_dir: str = "results"
    """Where runs are kept: a folder, or an object store (s3://bucket/folder)."""
    run_id: str = ""
    """The run's name; empty: the time of its start."""
    limits: RunLimits = RunLimits()

    @model_validator(mode="after")
    def _check_policy(self) -> Self:
        if misfit := self.policy.misfit(self.group_size, self.evaluate):
            raise ValueError(f"{misfit} (group_size is {self.group_size})")
        return self

    @field_validator("run_id")
    @classmethod
    def _check_run_id(cls, value: str) -> str:
        if value and not _RUN_ID.fullmatch(value):
            raise ValueError("a run's name has letters, digits, '.', '_' and '-', at most 100 of them")
        return value

    @field_validator("tasks", "tasks_root", "output_dir")
    @classmethod
    def _expand_home(cls, value: str) -> str:
        return expand_home(value)

    @field_validator("output_dir")
    @classmethod
    def _check_output_dir(cls, value: str) -> str:
        if not value.strip() or value.strip().endswith("://"):
            raise ValueError("it names no place; write a folder, or s3://bucket/folder")
        return value


def _option(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    return expand_home(value) if isinstance(value, str) and value.startswith("~/") else value  # path_to_vm, for one


_FREE_WITHIN = {"model": FREE_MODEL, "judge": FREE_MODEL, "limits": FREE_LIMITS}


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What of a run's settings is not as it was, of what decides its outcomes; one line for each field."""
    return [
        f"{name} was {_shown(old)} and is {_shown(new)}"
        for name, old, new in _compared(before, now)
        if old != new and not is_masked(old) and not is_masked(new)
    ]


def decisive(settings: dict[str, Any]) -> dict[str, Any]:
    """Of settings those that decide outcomes."""

    def within(name: str, value: dict[str, Any]) -> dict[str, Any]:
        return {each: value[each] for each in value.keys() - _FREE_WITHIN.get(name, frozenset())}

    kept = {name: value for name, value in settings.items() if name not in FREE}
    return {name: within(name, value) if isinstance(value, dict) else value for name, value in kept.items()}


def _compared(before: dict[str, Any], now: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    rows: list[tuple[str, Any, Any]] = []
    before, now = decisive(before), decisive(now)
    for name in sorted({*before, *now}):
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            rows.extend((f"{name}.{each}", old.get(each), new.get(each)) for each in sorted({*old, *new}))
        else:
            rows.append((name, old, new))
    return rows


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
