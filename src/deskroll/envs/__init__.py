"""Tasks made live: what an agent acts upon, one file or package a kind."""

from deskroll.envs.base import Ending, Env, EnvKind, Means, Moment, env_kind, env_settings, is_judged

__all__ = ["Ending", "Env", "EnvKind", "Means", "Moment", "env_kind", "env_settings", "is_judged"]
