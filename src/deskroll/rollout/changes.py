"""What of a run that goes on, or of a job's round, is not as it was begun: settings, code, tasks, what they work with.

Guarantees: whatever would mix outcomes of two kinds is one `ChangedSince` that says what differs, before anything is
written, unless somebody wants it all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from deskroll.agents import agent_kind, agent_settings
from deskroll.envs import env_kind, env_settings
from deskroll.errors import DeskrollError, InputError, StoreError, plain
from deskroll.models.settings import ModelSettings
from deskroll.rollout.config import RunConfig, decisive, differences
from deskroll.rollout.job import Batch, Job
from deskroll.rollout.loading import PHASE
from deskroll.rollout.plan import changed_tasks
from deskroll.rollout.redaction import redacted, without_masked
from deskroll.rollout.spec import Definition, EpisodeLimits, EpisodeSpec, plug_ins
from deskroll.store import Run, RunStore, Storage, config_digest, paths
from deskroll.store.journal import Planned
from deskroll.tasks import task_digest
from deskroll.types import Record, Task

_MOST_SHOWN = 10


class ChangedSince(InputError):
    """What a run, or a round of a job, was begun with is not what it would go on with."""


def resolved(config: RunConfig) -> dict[str, Any]:
    """The settings as run.json keeps them; the key is not among them."""
    return redacted(config.model_dump(mode="json", exclude={"model": {"api_key"}, "judge": {"api_key"}}))


def refuse_changed_run(config: RunConfig, tasks: Sequence[Task], run: Run, prepared: Mapping[str, str]) -> None:
    """A run that cannot go on as it was begun stays as it is."""
    changed = differences(_whole(run.info.config), _whole(resolved(config)))
    other_tasks = changed_tasks(run.index, PHASE, 0, tasks)
    changed += other_tasks
    changed += _changed_code(run.info.plug_ins, plug_ins(config))
    changed += [
        f"what env {name} works with (documents, pages, files beside the tasks) has changed"
        for name, digest in prepared.items()
        if digest != run.info.prepared.get(name, digest) and not other_tasks  # other tasks work with other files
    ]
    _refuse(
        f"run {run.info.run_id}", changed, "start a new run, or go on all the same with --force (in Python: force=True)"
    )


class SpecNote(Record, frozen=True):
    """Of a spec what decides outcomes: kept in the run's folder once, and named by each plan that goes by it."""

    spec: dict[str, Any]
    plug_ins: dict[str, str]

    @classmethod
    def of(cls, spec: EpisodeSpec) -> SpecNote:
        """Of a spec, with the code that it names as it is now."""
        made = Definition.of(spec)
        return cls(spec=decisive(_whole(redacted(made.spec))), plug_ins=made.plug_ins)

    async def keep(self, store: RunStore, job: Job, batch: Batch, *, force: bool = False) -> str:
        """Note it for a batch; its digest. What has outcomes in that round must be of the same kind, unless forced."""
        digest = config_digest(self)
        plan = store.index.plan(job.name, batch.round)
        if not force:
            done = {name: each for name, each in plan.items() if _has_outcome(store, each)}
            await self._refuse_others(store, job, batch, done)
        await asyncio.to_thread(self._write, store.storage, paths.spec_file(digest))
        return digest

    def _write(self, storage: Storage, path: str) -> None:
        """Have the whole of it there: the name says what is in it, so whatever else is there is damaged."""
        data = msgspec.json.format(msgspec.json.encode(self, order="sorted"), indent=2)
        if not storage.exists(path) or storage.read(path) != data:
            storage.write_atomic(path, data)

    async def _refuse_others(self, store: RunStore, job: Job, batch: Batch, done: Mapping[str, Planned]) -> None:
        changed = [
            f"task {plain(task.id)!r} has changed"
            for task in batch.tasks
            if task.id in done and done[task.id].digest != task_digest(task)
        ]
        for other in sorted({each.spec for each in done.values()} - {"", config_digest(self)}):
            before = await asyncio.to_thread(_read, store, other)
            begun = _whole({**EpisodeSpec().model_dump(mode="json"), **before.spec})  # it may be older than some fields
            changed += differences(begun, self.spec) + _changed_code(before.plug_ins, self.plug_ins)
        advice = "give what is new a round, or a name, of its own, or go on all the same with run(job, force=True)"
        _refuse(f"job {plain(job.name)!r}, round {batch.round},", changed, advice)


def _read(store: RunStore, digest: str) -> SpecNote:
    path = paths.spec_file(digest)
    try:
        return msgspec.json.decode(store.storage.read(path), type=SpecNote)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreError(f"{store.storage.shown(path)} cannot be read ({plain(str(error))}): restore it") from error


def _has_outcome(store: RunStore, planned: Planned) -> bool:
    return any(store.index.outcome(key) is not None for key in planned.keys())  # noqa: SIM118  (it is not a dict)


def _refuse(what: str, changed: list[str], advice: str) -> None:
    if changed:
        more = f"\n  ... and {len(changed) - _MOST_SHOWN} more" if len(changed) > _MOST_SHOWN else ""
        shown = "\n  ".join(changed[:_MOST_SHOWN])
        raise ChangedSince(f"{what} cannot go on as it was begun:\n  {shown}{more}\n{advice}")


def _changed_code(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [f"{name.rpartition(':')[0]} has changed" for name in before if now.get(name, before[name]) != before[name]]


def _whole(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with the defaults of all options filled in: to name a default is no change."""
    model, limits = ModelSettings().model_dump(mode="json"), EpisodeLimits().model_dump(mode="json")
    defaults = {"model": model, "judge": model, "limits": limits}
    filled = {name: {**defaults[name], **settings[name]} for name in defaults if settings.get(name)}
    settings = {**settings, **filled}
    try:
        env = env_settings(env_kind(settings["env"]), without_masked(settings["env_options"]), "")
        agent = agent_settings(agent_kind(settings["agent"]), without_masked(settings["agent_options"]), "")
    except (DeskrollError, KeyError):  # of another version of deskroll: compared as they are
        return settings
    options = redacted({"env_options": env.model_dump(mode="json"), "agent_options": agent.model_dump(mode="json")})
    return {**settings, **options}
