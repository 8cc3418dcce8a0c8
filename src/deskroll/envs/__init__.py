"""Tasks made live: what an agent acts upon, one file or package a kind."""

from deskroll.envs.base import Ending, Env, EnvContext, TurnResult, env_kind, env_settings

__all__ = ["Ending", "Env", "EnvContext", "TurnResult", "env_kind", "env_settings"]
