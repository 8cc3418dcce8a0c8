"""Turn observations into actions by asking a model, one file a kind of agent."""

from deskroll.agents.base import (
    Agent,
    AgentKind,
    Surroundings,
    agent_kind,
    agent_settings,
    code_options,
    dialect_of,
    model_protocol,
    reads_tree,
)

__all__ = [
    "Agent",
    "AgentKind",
    "Surroundings",
    "agent_kind",
    "agent_settings",
    "code_options",
    "dialect_of",
    "model_protocol",
    "reads_tree",
]
