"""Turn observations into actions by asking a model, one file a kind of agent."""

from deskroll.agents.base import NO_MODEL, Agent, AgentContext, agent_kind, agent_settings, agents_model

__all__ = ["NO_MODEL", "Agent", "AgentContext", "agent_kind", "agent_settings", "agents_model"]
