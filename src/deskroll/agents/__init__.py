"""Turn observations into actions by asking a model, one file a kind of agent."""

from deskroll.agents.base import (
    Agent,
    AgentContext,
    AgentKind,
    agent_kind,
    agent_settings,
    code_options,
    dialect_of,
    model_protocol,
    reads_tree,
)

__all__ = [
    "Agent",
    "AgentContext",
    "AgentKind",
    "agent_kind",
    "agent_settings",
    "code_options",
    "dialect_of",
    "model_protocol",
    "reads_tree",
]
