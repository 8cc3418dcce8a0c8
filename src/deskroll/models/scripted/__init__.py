"""A model server that says what a script tells it to: over real HTTP, strict about requests, with faults on demand.

`server.py` is the server, `script.py` what it says. With `VllmSettings` it stands in for vLLM: `control.py` has the
endpoints, `engine.py` what is behind them.
"""

from deskroll.models.scripted.script import FaultKind, Faults, Reply, Script, ToolUse, Turn
from deskroll.models.scripted.server import ScriptedServer, ScriptedStats
from deskroll.models.scripted.settings import Reloading, Starting, Trouble, VllmSettings
from deskroll.models.scripted.weights import Weights

__all__ = [
    "FaultKind",
    "Faults",
    "Reloading",
    "Reply",
    "Script",
    "ScriptedServer",
    "ScriptedStats",
    "Starting",
    "ToolUse",
    "Trouble",
    "Turn",
    "VllmSettings",
    "Weights",
]
