"""Flags of `vllm serve`: parameters as words of a command line, and which of them are not for people to set."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from pydantic import JsonValue

OURS = {
    "model": "it is ckpt_path",
    "model-tag": "it is ckpt_path",
    "served-model-name": "it is served_name",
    "enable-lora": "it is enable_lora",
    "uds": "servers listen on a unix socket of deskroll's",
    "host": "servers listen on a unix socket, since vLLM's control endpoints know no key",
    "port": "servers listen on a unix socket, since vLLM's control endpoints know no key",
    "api-key": "nobody but you reaches a server's unix socket",
    "root-path": "control endpoints would not be found",
    "ssl-keyfile": "servers listen on a unix socket",
    "ssl-certfile": "servers listen on a unix socket",
    "config": "write its flags into vllm_params",
    "headless": "a server without an API answers nobody",
}
"""Flags that deskroll itself decides on, and what to do instead."""


def flag_name(name: str) -> str:
    """The flag that a parameter stands for, without its dashes."""
    return name.strip().lstrip("-").replace("_", "-").lower()


def refuse_our_flags(names: Iterable[str]) -> None:
    """ValueError for a flag that is not for people to set."""
    for name in names:
        flag = flag_name(name)
        why = OURS.get(flag) or OURS.get(flag.removeprefix("no-"))
        if why:
            raise ValueError(f"the flag {name} cannot be set in vllm_params: {why}")
        if not flag or any(sign.isspace() or sign == "=" for sign in flag):
            raise ValueError(f"{name!r} is not the name of a flag; write it like max_model_len")


def flag_words(params: Mapping[str, JsonValue]) -> list[str]:
    """Parameters as words of a command line; a null is left out."""
    words = []
    for name, value in params.items():
        flag = f"--{flag_name(name)}"
        if value is None:
            continue
        if isinstance(value, bool):
            words.append(flag if value else f"--no-{flag_name(name)}")
        elif isinstance(value, list):
            words += [flag, *map(_word, value)]
        else:
            words += [f"{flag}={_word(value)}"]
    return words


def _word(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value)
