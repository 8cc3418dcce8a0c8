"""A training run's folder: which one it is, whether it may be used, and the settings that are kept in it.

    <log_path>/train.yaml      the settings as they were given, secrets masked: what a resume goes by

Guarantees: nothing is written among files that are no training run's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from deskroll.config import Override, load
from deskroll.errors import InputError, StoreError, plain
from deskroll.host.home import expand_home
from deskroll.rollout.folder import holds_runtime
from deskroll.rollout.redaction import masked_settings, redacted, without_masked
from deskroll.store import Storage, find_run
from deskroll.store.paths import TRAIN_CONFIG as CONFIG
from deskroll.train.config import CLIConfig

DECISIVE = (
    "model_name", "group_size", "groups_per_batch", "tasks", "eval_tasks", "use_default_eval_tasks", "seed",
    "max_turns", "max_tokens", "temperature", "learning_rate", "kl_penalty_coef", "num_substeps", "lora_rank",
    "load_checkpoint_path", "advantage", "weight", "eval_samples", "eval_temperature", "agent",
    "agent_options", "env", "env_options", "trainer", "trainer_options",
)  # fmt: skip
"""Settings that decide what comes of a training run: a resume goes on with those that it was begun with."""


def run_folder(config: CLIConfig) -> str:
    """Where the run is kept: `log_path`, or a folder that is named by the time."""
    if config.log_path:
        return str(Path(config.log_path).absolute()) if "://" not in config.log_path else config.log_path
    name = Path("results", time.strftime("%Y%m%d-%H%M%S")).absolute()
    taken = (name.with_name(f"{name.name}-{n}") for n in range(2, 1000))
    return str(name if not name.exists() else next(each for each in taken if not each.exists()))


def holds_training(folder: str) -> bool:
    """Whether a training run is there, which goes on then; `InputError` where something else is."""
    if "://" not in folder and (file := next((each for each in _upward(folder) if each.is_file()), None)):
        raise InputError(f"log_path: {folder}: a file of that name is in the way ({file}); choose another folder")
    try:
        begun = holds_runtime(folder)
    except (InputError, StoreError) as error:
        raise InputError(f"log_path: {error}") from None
    if begun and not Storage.at(folder).exists(CONFIG):
        raise InputError(f"log_path: {folder} holds a run that is no training run (it has no {CONFIG}); choose another")
    return begun


def refuse_changed(folder: str, config: CLIConfig) -> None:
    """A run that cannot go on as it was begun stays as it is; what its episodes are made of, its jobs compare."""
    kept = yaml.safe_load(Storage.at(folder).read(CONFIG))
    now = redacted(config.model_dump(mode="json"))
    changed = [
        f"{name} was {plain(repr(kept[name]), 60)} and is {plain(repr(now[name]), 60)}"
        for name in DECISIVE
        if isinstance(kept, dict) and name in kept and kept[name] != now[name]
    ]
    if changed:
        lines = "\n  ".join(changed)
        raise InputError(
            f"training run {folder} cannot go on as it was begun:\n  {lines}\nstart another one: --log-path"
        )


def keep_settings(folder: str, config: CLIConfig) -> None:
    """Write down what the run goes by, for a resume."""
    kept = redacted(config.model_dump(mode="json"))
    Storage.at(folder).write_atomic(CONFIG, yaml.safe_dump(kept, sort_keys=False, allow_unicode=True).encode())


def kept_settings(given: str, overrides: Sequence[Override]) -> tuple[str, CLIConfig]:
    """The folder and the settings of a training run that is to go on, with what is changed of them."""
    try:
        folder = find_run(expand_home(given))
        storage = Storage.at(folder)
        if not storage.exists(CONFIG):
            raise InputError(f"{folder} is no training run: it has no {CONFIG}; name the folder of one")
        kept = yaml.safe_load(storage.read(CONFIG))
    except StoreError as error:
        raise InputError(str(error)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{given}/{CONFIG} cannot be read ({plain(str(error))}): restore it") from None
    name = f"{folder}/{CONFIG}"
    if not isinstance(kept, dict):
        raise InputError(f"{name} holds no settings: restore it")
    set_anew = {each[0] if isinstance(each, tuple) else each.partition("=")[0].strip() for each in overrides}
    for setting in masked_settings(kept):
        if setting not in set_anew:
            raise InputError(f"{name}: {setting} was a secret and is not kept; give it again: --set {setting}=...")
    config = load(CLIConfig, None, overrides, base=without_masked(kept), name=name)
    return folder, config.model_copy(update={"log_path": folder})


def _upward(folder: str) -> list[Path]:
    path = Path(folder).absolute()
    return [path, *path.parents]
