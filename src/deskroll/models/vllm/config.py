"""ModelPoolConfig: which model is served, by how many vLLM servers, on what, and where newer weights come from."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, JsonValue, field_validator, model_validator

from deskroll.config import Settings
from deskroll.host.home import expand_home
from deskroll.models.vllm.flags import refuse_our_flags
from deskroll.models.weights.refresh import RefreshMode

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
OUR_ENV = ("DESKROLL_", "VLLM_SERVER_DEV_MODE", "VLLM_API_KEY", "SPT_NOENV")
"""What variables begin with that are not for `env`: deskroll itself decides on them."""


def _words(value: object) -> object:
    return value.split() if isinstance(value, str) else value


class RestartSettings(Settings):
    """How often a server that died is started again."""

    most: int = Field(default=5, ge=0)
    """So many times; after that the server is given up, and says why."""
    within: Seconds = 600
    """Within so many seconds; deaths that lie further apart do not add up."""


class WeightsSettings(Settings):
    """Where newer weights come from."""

    source: str = ""
    """A folder, or an address that fsspec knows (s3://bucket/folder), with one folder a version; empty: none."""
    poll: Seconds = 2
    """How often it is looked into while somebody waits for newer weights, in seconds."""
    cache: str = ""
    """Where what is elsewhere is copied to; empty: a folder of deskroll's in the user's cache."""

    @field_validator("source", "cache")
    @classmethod
    def _expand(cls, value: str) -> str:
        return expand_home(value)


class ModelPoolConfig(Settings):
    """A model that is served on this machine. Times are in seconds."""

    ckpt_path: str = ""
    """The folder with the model: weights, configuration and tokenizer."""
    replicas: int = Field(default=1, ge=1, le=1024)
    """How many servers."""
    gpus: Literal["auto", "none"] | tuple[int | str, ...] = "auto"
    """What servers run on: auto (one GPU each, in turn), none (CPUs), or a list, an entry a server: 0, or "0,1"."""
    base_port: int = Field(default=0, ge=0, le=65000)
    """The first of the ports by which the processes of a server reach each other, 100 for each server; 0: any free
    ones. Nobody else is served there: servers listen on unix sockets."""
    vllm_params: dict[str, JsonValue] = Field(default_factory=dict)
    """Flags of `vllm serve`, passed on: {max_model_len: 4096, enforce_eager: true}."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables for the servers, added to those of this process."""
    vllm_command: Annotated[tuple[str, ...], BeforeValidator(_words)] = ()
    """The program, in one or more words; empty: `vllm` on PATH, else that of `make vllm`."""
    served_name: str = Field(default="policy", min_length=1, pattern=r"^[^@\s]+$")
    """What the model is called in requests."""
    start_timeout: Seconds = 1800
    """The longest that a server may take until it answers."""
    restarts: RestartSettings = RestartSettings()
    """What happens when a server dies."""
    weights: WeightsSettings = WeightsSettings()
    """Where newer weights come from."""
    refresh: RefreshMode = RefreshMode.DRAIN
    """What becomes of open requests when weights change: drain, keep or abort."""
    rolling: int = Field(default=1, ge=0)
    """How many servers get newer weights at a time; 0: all at once."""
    enable_lora: bool = False
    """Whether weights are adapters (LoRA), loaded beside those of `ckpt_path`."""

    @field_validator("ckpt_path")
    @classmethod
    def _expand(cls, value: str) -> str:
        return expand_home(value)

    @field_validator("env")
    @classmethod
    def _check_env(cls, value: dict[str, str]) -> dict[str, str]:
        if ours := [name for name in value if name.startswith(OUR_ENV)]:
            raise ValueError(f"the variable {ours[0]} cannot be set here: deskroll itself decides on it")
        return value

    @field_validator("vllm_params")
    @classmethod
    def _check_params(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        refuse_our_flags(value)
        return value

    @model_validator(mode="after")
    def _check_gpus(self) -> Self:
        if isinstance(self.gpus, tuple) and len(self.gpus) < self.replicas:
            raise ValueError(f"gpus has {len(self.gpus)} entries for {self.replicas} replicas; give each server one")
        return self

    def gpu(self, number: int, there: int) -> str | None:
        """What server `number` sees where so many GPUs are there, as CUDA_VISIBLE_DEVICES has it; None: all of it."""
        if self.gpus == "none":
            return ""
        if isinstance(self.gpus, tuple):
            return str(self.gpus[number % len(self.gpus)])
        return str(number % there) if there else None
