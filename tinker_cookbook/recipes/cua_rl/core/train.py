"""The training script that the users' documents name: `deskroll train`, and `CLIConfig` and `cli_main`, by that path.

    python tinker_cookbook/recipes/cua_rl/core/train.py --max-concurrent-rollouts 8 --model-name "my-model"
    from tinker_cookbook.recipes.cua_rl.core.train import CLIConfig, cli_main

For a checkout; it is not in the wheel. Its folders have no `__init__.py`, so that where tinker-cookbook is installed
its own package is found, and this one is not.
"""

from __future__ import annotations

import sys
from pathlib import Path

_SRC = str(Path(__file__).resolve().parents[4] / "src")
if _SRC not in sys.path:
    sys.path.insert(0, _SRC)

try:
    from deskroll.train import CLIConfig, cli_main
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] == "deskroll":
        raise
    sys.exit(
        f"this Python ({sys.executable}) has no module {error.name!r}: run `make setup` in the checkout, then\n"
        f"`source .venv/bin/activate`, and start the script again"
    )

__all__ = ["CLIConfig", "cli_main"]

if __name__ == "__main__":
    from deskroll.cli.train import train
    from deskroll.conduct.program import run_command

    run_command(train)
