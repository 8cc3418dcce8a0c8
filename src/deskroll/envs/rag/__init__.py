"""Questions about documents: a folder or a file of texts, cut into passages, indexed once and searched."""

from deskroll.envs.rag.env import RagEnv

__all__ = ["RagEnv"]
