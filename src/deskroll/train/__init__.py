"""Training: baseline, steps and evaluations on one runtime, and the trainers that take the steps.

    from deskroll.train import CLIConfig, cli_main
    asyncio.run(cli_main(CLIConfig(model_name="my-model", tasks={"source_type": "file", "file_path": "tasks.jsonl"})))

Nothing is imported before it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deskroll.tasks.sources import TaskSourceConfig
    from deskroll.train.config import CLIConfig
    from deskroll.train.start import cli_main

__all__ = ["CLIConfig", "TaskSourceConfig", "cli_main"]

_HOME_OF = {
    "CLIConfig": "deskroll.train.config",
    "TaskSourceConfig": "deskroll.tasks.sources",
    "cli_main": "deskroll.train.start",
}


def __getattr__(name: str) -> object:
    """A public name, imported when it is asked for."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_HOME_OF[name]), name)
    return found
