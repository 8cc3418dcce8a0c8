"""Tasks made live: what an agent acts upon, one file or package a kind."""

from deskroll.envs.base import Ending, Env, EnvContext, EnvKind, TurnResult, env_kind, env_settings, is_judged

__all__ = ["Ending", "Env", "EnvContext", "EnvKind", "TurnResult", "env_kind", "env_settings", "is_judged"]
