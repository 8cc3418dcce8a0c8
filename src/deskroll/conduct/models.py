"""Models that answer, before anything is started for a run: asked once, or served here where they are scripts."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from deskroll.agents import agent_kind, dialect_of, model_protocol
from deskroll.errors import ConfigError, ModelError
from deskroll.models.base import ModelRefused
from deskroll.models.client import ModelClient
from deskroll.models.dialect import Dialect
from deskroll.models.listed import is_listed, unlisted
from deskroll.models.openai import OpenAIChat
from deskroll.models.scripted import Script, ScriptedServer
from deskroll.models.settings import ModelSettings
from deskroll.rollout.config import RunConfig
from deskroll.rollout.loading import SCRIPTED

_log = logging.getLogger(__name__)
_CHECK_S = 15.0


@asynccontextmanager
async def answering_models(config: RunConfig) -> AsyncIterator[RunConfig]:
    """The settings with models that answer: checked, or served here where they are scripts."""
    limited = next((name for name in ("max_cost_usd", "run_cost_usd") if getattr(config.limits, name) is not None), "")
    async with AsyncExitStack() as stack:
        served = {}
        if model_protocol(kind := agent_kind(config.agent)) != "none":
            served["model"] = await stack.enter_async_context(
                _answering(config.model, "model", dialect_of(kind), limited=limited)
            )
        if config.judge is not None and config.evaluate:
            served["judge"] = await stack.enter_async_context(
                _answering(config.judge, "judge", OpenAIChat, limited=limited)
            )
        yield config.model_copy(update=served)


@asynccontextmanager
async def _answering(
    model: ModelSettings, name: str, dialect: type[Dialect], *, limited: str
) -> AsyncIterator[ModelSettings]:
    """One model; `limited` names the limit for which its price must be known."""
    if not model.name.startswith(SCRIPTED):
        await _check_model(model, name, dialect, limited=limited)
        yield model
        return
    if dialect is not OpenAIChat:
        raise ConfigError(
            f"{name}.name is {model.name!r}: a script speaks OpenAI's protocol, and this agent another one"
        )
    path = Path(model.name.removeprefix(SCRIPTED))
    if not path.is_file():
        raise ConfigError(f"{name}.name is {model.name!r}, and {str(path)!r} is no file; write scripted:FILE")
    script = Script.load(path)
    if limited and model.price is None:
        raise ConfigError(f"limits.{limited} is set, and nobody knows the price of a script: set {name}.price, too")
    async with ScriptedServer(script) as server:
        yield model.model_copy(update={"base_url": server.url})


async def _check_model(model: ModelSettings, name: str, dialect: type[Dialect], *, limited: str) -> None:
    """Find out before any desktop is started that a model cannot be asked."""
    settings = model.model_copy(update={"timeout": _CHECK_S, "retries": 1})
    async with ModelClient(settings, dialect) as client:
        try:
            listed = await client.check()
            if listed and not is_listed(model.name, listed):
                _log.warning("%s: %s", name, unlisted(model.name, client.address.shown, listed))
            if limited and not client.knows_price:
                unknown = f"the price of {model.name} is not known"
                raise ConfigError(f"limits.{limited} is set, and {unknown}: set {name}.price, too")
        except ModelRefused as error:
            raise ConfigError(f"{name}: {error}") from None
        except ModelError as error:
            raise ConfigError(
                f"{name}: {error}; set {dialect.vendor.url_variable} (or {name}.base_url) and "
                f"{dialect.vendor.key_variable}, or name a script: scripted:FILE"
            ) from None
