"""A Python in a sandbox: one process an episode, whose names stay from call to call."""

from deskroll.envs.interpreter.interpreter import Interpreter
from deskroll.envs.interpreter.sandbox import Limits

__all__ = ["Interpreter", "Limits"]
