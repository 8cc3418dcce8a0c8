"""RunSettings: what of a run's settings a training run may set besides the fields of `CLIConfig` (`run: {...}`).

Guarantees: nothing has two places. What is a field of `CLIConfig`, and what training itself decides on, is refused here
by name, with where it belongs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self

from pydantic import model_validator

from deskroll.rollout.config import Resources
from deskroll.rollout.spec import EpisodeSpec

FIELDS = {
    "model.name": "model_name", "model.temperature": "temperature", "model.max_tokens": "max_tokens",
    "model.seed": "seed", "model.timeout": "max_turn_time_seconds", "watchdog.act_timeout": "max_turn_time_seconds",
    "limits.max_turns": "max_turns", "limits.max_time": "max_task_time_seconds",
    "num_rollouts": "num_rollouts", "num_vms": "num_vms", "max_concurrent_rollouts": "max_concurrent_rollouts",
    "group_size": "group_size", "policy": "policy", "agent": "agent", "agent_options": "agent_options", "env": "env",
    "env_options": "env_options", "provider": "provider", "tasks": "tasks", "tasks_root": "tasks", "only": "tasks",
    "limit": "tasks", "output_dir": "log_path", "run_id": "log_path",
}  # fmt: skip
"""Settings of a run that are set by a field of `CLIConfig`, and by which."""
_DECIDED = {
    "evaluate": "training goes by scores, so attempts are always judged",
    "model.exact": "what is trained on is always exact",
    "model.logprobs": "what is trained on always has them",
    "model.return_token_ids": "what is trained on always has them",
    "limits.run_cost_usd": "a training run ends after its steps, and has no such limit",
    "limits.run_time": "a training run ends after its steps, and has no such limit",
}
"""Settings of a run that are not for people to set in training, and why."""
_SAMPLED = {"temperature": "temperature", "max_tokens": "max_tokens", "seed": "seed"}
"""What `model.extra` may say of sampling, and the field for it."""


class RunSettings(Resources, EpisodeSpec):
    """Any other setting of a run (docs/settings.md), e.g. `run: {model: {base_url: ...}, judge: {...}}`."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_others(cls, given: object) -> object:
        for path in _paths(given) if isinstance(given, Mapping) else ():
            if (field := FIELDS.get(path)) is not None:
                raise ValueError(f"{path} is set by the field {field} of the training run; set that, and only that")
            if (why := _DECIDED.get(path)) is not None:
                raise ValueError(f"{path} cannot be set here: {why}")
        return given

    @model_validator(mode="after")
    def _check_sampling(self) -> Self:
        extra = self.model.sampling_of_extra()
        for name, field in _SAMPLED.items():
            if name in extra:
                raise ValueError(f"model.extra.{name} is set by the field {field} of the training run; set that")
        sampled = {"top_p": self.model.top_p, "top_k": self.model.top_k, **extra}
        for name, whole in (("top_p", (None, 1.0)), ("top_k", (None, 0, -1))):
            if sampled[name] not in whole:
                raise ValueError(
                    f"model.{name} is {sampled[name]}: in training every token may be sampled, or the server's "
                    "log-probabilities would be of something else than the trainer's; leave it out"
                )
        return self


def _paths(given: Mapping[str, object]) -> Iterator[str]:
    """The settings that are given, and those inside of them."""
    for name, value in given.items():
        if name == "model" and isinstance(value, str):
            yield "model.name"
            continue
        yield str(name)
        if isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in value)
