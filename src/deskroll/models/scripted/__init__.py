"""A model server that says what a script tells it to: over real HTTP, strict about requests, with faults on demand."""

from deskroll.models.scripted.script import FaultKind, Faults, Reply, Script, ToolUse, Turn
from deskroll.models.scripted.server import ScriptedServer, ScriptedStats

__all__ = ["FaultKind", "Faults", "Reply", "Script", "ScriptedServer", "ScriptedStats", "ToolUse", "Turn"]
