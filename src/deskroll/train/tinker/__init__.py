"""tinker-cookbook's loop over our tasks: it samples and trains, and its environments are our episodes.

messages.py   an agent's request as a prompt of tokens, and sampled tokens as an answer
env.py        one episode, and the group of a task: tinker's `Env` and `EnvGroupBuilder`
dataset.py    tasks as batches of groups: tinker's `RLDataset` and `RLDatasetBuilder`

Needs tinker-cookbook, in an environment of its own: `pip install 'deskroll[tinker]'`. docs/rl.md says who owns what.
"""

from __future__ import annotations

from deskroll.errors import MissingDependency

try:
    import tinker_cookbook  # noqa: F401
except ImportError as error:
    raise MissingDependency("tinker's environments need tinker-cookbook: pip install 'deskroll[tinker]'") from error

from deskroll.train.tinker.dataset import DeskrollDataset, DeskrollDatasetBuilder
from deskroll.train.tinker.env import DeskrollEnv, DeskrollGroupBuilder
from deskroll.train.tinker.messages import Tokens

__all__ = ["DeskrollDataset", "DeskrollDatasetBuilder", "DeskrollEnv", "DeskrollGroupBuilder", "Tokens"]
