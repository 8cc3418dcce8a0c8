"""WebSettings: where to search, what may be visited, and how much of it is read. Keys are not among the settings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from deskroll.envs.tooled import ToolSettings
from deskroll.envs.web.addresses import allowed_host
from deskroll.host.home import expand_home

SearchName = Literal["auto", "searxng", "serper", "brave"]


class WebSettings(ToolSettings):
    """Options of the web environment."""

    search: SearchName = "auto"
    """Who is asked; auto: whoever's variable is set (SEARXNG_URL, SERPER_API_KEY, BRAVE_API_KEY, in this order)."""
    search_url: str = ""
    """The address that is asked, instead of the search engine's own; for proxies and tests."""
    top_k: int = Field(default=5, ge=1, le=20)
    """Results for each query."""
    search_seconds: float = Field(default=30, gt=0, le=600, allow_inf_nan=False)
    """The longest that one query may take, in seconds, pauses and retries included."""
    search_retries: int = Field(default=3, ge=0, le=20)
    """How often a query that failed for a passing reason is asked again."""
    backoff: float = Field(default=0.5, ge=0, le=60, allow_inf_nan=False)
    """The longest pause before the first retry, in seconds; doubled with each further one."""
    mirror: str = ""
    """A folder of pages (<host>/<path>, as `wget --mirror` leaves it) that stands for the whole web."""
    allow_hosts: tuple[str, ...] = ()
    """Hosts (`name` or `name:port`) that may be visited wherever their names lead, private networks included."""
    page_seconds: float = Field(default=30, gt=0, le=600, allow_inf_nan=False)
    """The longest that one page may take, in seconds, redirects included."""
    connect_seconds: float = Field(default=10, gt=0, le=600, allow_inf_nan=False)
    """The longest that connecting may take, in seconds."""
    page_mb: float = Field(default=5, gt=0, le=50, allow_inf_nan=False)
    """The most that is read of a page, in megabytes (10^6 bytes), on the wire and again when unpacked."""
    page_chars: int = Field(default=8_000, ge=100, le=19_000)
    """The most characters of a page that one visit shows."""
    parallel: int = Field(default=4, ge=1, le=32)
    """Pages or queries of one episode that are under way at a time."""
    summarise: bool = False
    """Whether the run's model extracts from a page what serves the goal, instead of the page's text being shown."""

    @field_validator("mirror")
    @classmethod
    def _expand_home(cls, value: str) -> str:
        return expand_home(value)

    @field_validator("allow_hosts")
    @classmethod
    def _hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for each in hosts:
            allowed_host(each)
        return hosts
