"""Command: the command line and the environment of one `vllm serve`.

Guarantees: the server listens on the given unix socket and nowhere else; every process of it, whatever it calls itself,
carries its mark; no key is asked for that nobody has.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from deskroll.errors import ConfigError, MissingDependency
from deskroll.host.runtime_folder import LONGEST_SOCKET_PATH
from deskroll.models.vllm.config import ModelPoolConfig
from deskroll.models.vllm.flags import flag_name, flag_words
from deskroll.types import Record

MARK = "DESKROLL_MODEL_SERVER"
"""The variable that every process of a server has; its value is the server's id."""
_BUILT = Path(__file__).parents[4] / ".venv-vllm" / "bin" / "vllm"
"""Where `make vllm` puts it, in a checkout."""
_PORTS = 100
_KEEP_ALIVE_S = "60"
"""Longer than a client keeps a connection (`endpoint.py`): one that both give up at once loses a request."""
_DEFAULTS: dict[str, JsonValue] = {
    "logprobs-mode": "processed_logprobs", "enable-auto-tool-choice": True, "tool-call-parser": "hermes",
}  # fmt: skip
"""Log-probabilities of what was sampled from: after temperature and top-p, not before. Without a parser of calls, vLLM
refuses every request with tools."""

_CPU_DEFAULTS = {"VLLM_CPU_KVCACHE_SPACE": "4", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""On CPUs a server would take nine tenths of the memory, and all servers of a machine the same cores."""
_LORA_DEFAULTS: dict[str, JsonValue] = {"max-loras": 3, "max-cpu-loras": 5}
"""With one alone, requests for the newest adapter would wait until those for the one before it, and for one that is
pinned (an evaluation's), are over."""


class Place(Record, frozen=True):
    """Where one server is to be: what differs between servers of one pool."""

    id: str
    """Its mark."""
    socket: Path
    scratch: Path
    """A folder for the sockets of its processes among each other, which stay when they are killed."""
    number: int = 0
    """Its number in the pool."""
    gpu: str | None = None
    """The GPUs that it sees, as CUDA_VISIBLE_DEVICES has them; None: whatever there is."""


class ServerCommand(Record, frozen=True):
    """What is started."""

    words: tuple[str, ...]
    env: Mapping[str, str]


def find_vllm(command: tuple[str, ...], env: Mapping[str, str], built: Path = _BUILT) -> tuple[str, ...]:
    """The program: what the settings name, else what is on PATH, else what `make vllm` made."""
    if command:
        found = shutil.which(command[0], path=env.get("PATH", ""))
        if found is None:
            raise ConfigError(f"vllm_command names {command[0]}, which is no program that can be run; check the path")
        return (found, *command[1:])
    found = shutil.which("vllm", path=env.get("PATH", "")) or shutil.which(str(built))
    if found is None:
        raise MissingDependency(
            "there is no vLLM: install one for your GPU (pip install vllm) and have it on PATH or in vllm_command, "
            "or run `make vllm` in a checkout of deskroll for one that runs on CPUs"
        )
    return (found,)


def server_command(
    config: ModelPoolConfig, place: Place, env: Mapping[str, str], folder: Path | None = None, built: Path = _BUILT
) -> ServerCommand:
    """The command line and the environment of one server; `env` is that of this process.

    `folder`: what it is started on, where that is not `ckpt_path`.
    """
    if not config.ckpt_path:
        raise ConfigError("ckpt_path is empty; name the folder of the model to serve (--ckpt-path DIR)")
    given = {flag_name(name) for name in config.vllm_params}
    defaults = _DEFAULTS | (_LORA_DEFAULTS if config.enable_lora and not given & _LORA_DEFAULTS.keys() else {})
    ours = {name: value for name, value in defaults.items() if name not in given}
    words = [
        *find_vllm(config.vllm_command, env, built), "serve", str(folder or config.ckpt_path), f"--uds={place.socket}",
        f"--served-model-name={config.served_name}", *flag_words(dict(ours)),
        *(["--enable-lora"] if config.enable_lora else []), *flag_words(config.vllm_params),
    ]  # fmt: skip
    return ServerCommand(words=tuple(words), env=_environment(config, place, env))


def _environment(config: ModelPoolConfig, place: Place, env: Mapping[str, str]) -> dict[str, str]:
    found = {name: value for name, value in env.items() if name != "VLLM_API_KEY"}  # nobody would send it
    if len(f"{place.scratch}/{uuid.uuid4()}") <= LONGEST_SOCKET_PATH:  # else where vLLM itself would have them
        found["VLLM_RPC_BASE_PATH"] = str(place.scratch)
    found = _CPU_DEFAULTS | found | {"VLLM_NO_USAGE_STATS": "1", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": _KEEP_ALIVE_S}
    found |= config.env
    if place.gpu is not None:
        found["CUDA_VISIBLE_DEVICES"] = place.gpu
    if config.base_port:
        found["VLLM_PORT"] = str(config.base_port + place.number * _PORTS)
    if config.enable_lora:
        found["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
    # Processes that rename themselves write over their environment, and so over the mark, unless they are told not to.
    return found | {"VLLM_SERVER_DEV_MODE": "1", "SPT_NOENV": "1", MARK: place.id}
