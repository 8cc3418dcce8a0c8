"""Questions with web search and pages: the open web behind a guard, or a folder of pages that stands for it."""

from deskroll.envs.web.env import WebEnv
from deskroll.envs.web.outside import Outside, Resolver
from deskroll.envs.web.settings import WebSettings

__all__ = ["Outside", "Resolver", "WebEnv", "WebSettings"]
