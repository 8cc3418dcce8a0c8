"""EpisodeSpec: what the episodes of a job are made of: environment, agent, model with sampling, judge, limits, retries,
group policy.

People write it (a part of a run's settings, or in Python), the engine goes by it, and workers get it once, as a
`Definition` under its digest, by which orders name it. Keys travel beside it, never in it.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from pydantic import Field

from deskroll.config import Settings
from deskroll.importing import file_digest
from deskroll.models.settings import ModelSettings
from deskroll.rollout.group_policy import GroupPolicy
from deskroll.rollout.retry import Retries
from deskroll.types import Record


class EpisodeLimits(Settings):
    """How much one attempt may use up; times are in seconds."""

    max_turns: int = Field(default=50, ge=1, le=1_000_000)
    """Turns of the agent."""
    max_time: float | None = Field(default=3600.0, gt=0)
    """Time for the agent's turns; waiting for a desktop, set-up and scoring do not count."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Tokens, prompt and completion together."""
    max_cost_usd: float | None = Field(default=None, gt=0)
    """Cost of the model's answers, in US dollars, where it is known."""
    setup_timeout: float = Field(default=600.0, gt=0)
    """Time for preparing the task."""
    score_timeout: float = Field(default=600.0, gt=0)
    """Time for judging it."""
    close_timeout: float = Field(default=60.0, gt=0)
    """Time for letting go of what the environment holds; what is cut off then changes nothing of the result."""


class EpisodeSpec(Settings):
    """What every episode of a job has in common."""

    env: str = "osworld"
    """The environment: one that `deskroll plugins ls` shows, or your own: FILE.py:CLASS."""
    env_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the environment."""
    agent: str = "chat"
    """The agent: one that `deskroll plugins ls` shows, or your own: FILE.py:CLASS."""
    agent_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the agent."""
    model: ModelSettings = Field(default_factory=ModelSettings)
    """The model that the agent asks; a text is its name."""
    judge: ModelSettings | None = None
    """The model that judges answers (evaluation_metric llm_judgement); none: the one that the agent asks."""
    evaluate: bool = True
    """Whether attempts are judged; if not, they end unscored."""
    limits: EpisodeLimits = EpisodeLimits()
    retries: Retries = Retries()
    policy: GroupPolicy = GroupPolicy()

    def of_task(self, env: str | None) -> tuple[str, dict[str, Any]]:
        """The environment of a task that names one, or none, and its options.

        The options are those of the job's own environment; a task of another kind has that kind's defaults.
        """
        name = env or self.env
        return name, self.env_options if name == self.env else {}


class Keys(Record, frozen=True):
    """The keys of a spec's models. They travel beside the spec, never in it, and show themselves to nobody."""

    model: str = ""
    judge: str = ""

    def __repr__(self) -> str:
        return "Keys(...)"


class Definition(Record, frozen=True):
    """A spec on its way to workers."""

    digest: str
    """By which orders name it."""
    spec: dict[str, Any]
    keys: Keys
    plug_ins: dict[str, str]
    """Parts that are named by a file, each with the digest of that file when the job began."""
    folder: str
    """Where the files are that tasks name."""

    @classmethod
    def of(cls, spec: EpisodeSpec, folder: str = "", code: dict[str, str] | None = None) -> Definition:
        """The definition of a spec; `code`: the digests of what it names, without: as it is now."""
        made = EpisodeSpec(**{name: getattr(spec, name) for name in EpisodeSpec.model_fields})
        dumped = made.model_dump(mode="json", exclude={"model": {"api_key"}, "judge": {"api_key"}})
        keys = Keys(model=key_of(spec.model), judge=key_of(spec.judge))
        found = plug_ins(spec) if code is None else code
        whole = msgspec.json.encode((dumped, keys, found, folder), order="sorted")
        digest = hashlib.blake2b(whole, digest_size=12).hexdigest()
        return cls(digest=digest, spec=dumped, keys=keys, plug_ins=found, folder=folder)


def plug_ins(spec: EpisodeSpec) -> dict[str, str]:
    """The parts of a spec that are named by a file, each with the digest of that file."""
    # Imported here, since settings are read for every --help.
    from deskroll.agents import agent_kind  # noqa: PLC0415
    from deskroll.envs import env_kind  # noqa: PLC0415

    code = {**agent_kind(spec.agent).code_of(spec.agent_options), **env_kind(spec.env).code_of(spec.env_options)}
    models = (spec.model.kind, spec.judge.kind if spec.judge is not None else "")
    named = (spec.env, spec.agent, *code.values(), *models)
    return {name: digest for name in named if (digest := file_digest(name))}


def key_of(settings: ModelSettings | None) -> str:
    """The key of a model, as it was set; empty: there is none."""
    return settings.api_key.get_secret_value() if settings is not None and settings.api_key else ""
