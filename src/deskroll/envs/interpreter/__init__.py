"""A Python in a sandbox: one process an episode, whose names stay from call to call; or one for a single call."""

from deskroll.envs.interpreter.interpreter import Interpreter, Once, run_once
from deskroll.envs.interpreter.sandbox import Limits

__all__ = ["Interpreter", "Limits", "Once", "run_once"]
