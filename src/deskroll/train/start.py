"""A training run is started: from Python (`cli_main`), or by whoever read its settings from a command line.

`DESKROLL_TRAIN_CONFIG` names a file of settings that count where nothing else sets them: below CONFIG, flags, Python.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from deskroll.config import load
from deskroll.errors import InputError
from deskroll.host.home import expand_home
from deskroll.models.settings import load_env
from deskroll.train.config import CLIConfig

VARIABLE = "DESKROLL_TRAIN_CONFIG"


async def cli_main(cli_config: CLIConfig) -> None:
    """Run a training run to its end: baseline, steps, evaluations; its progress is shown.

    Bad input is an `InputError`, before anything is started.
    """
    load_env(Path.cwd())
    # Imported here, for settings are read without either.
    from deskroll.train.conducting import train  # noqa: PLC0415
    from deskroll.train.preparing import prepare  # noqa: PLC0415

    prepared = await asyncio.to_thread(prepare, with_defaults(cli_config, os.environ), os.environ)
    (await train(prepared)).tell(as_json=False)


def with_defaults(config: CLIConfig, env: Mapping[str, str]) -> CLIConfig:
    """The settings, with those of the file that the variable names where nobody set them."""
    if not (file := env.get(VARIABLE, "").strip()):
        return config
    try:
        below = load(CLIConfig, Path(expand_home(file)))
    except InputError as error:
        raise InputError(f"{VARIABLE}: {error}") from None
    unset = below.model_fields_set - config.model_fields_set
    given = {name: getattr(below, name) for name in unset}
    given |= {name: getattr(config, name) for name in config.model_fields_set}
    return CLIConfig(**given)
