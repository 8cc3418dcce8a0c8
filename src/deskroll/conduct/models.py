"""Models that answer, before anything is started for a run: served where that is needed, and asked once."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from deskroll.agents import NO_MODEL, agent_kind, agents_model
from deskroll.errors import ConfigError, ModelError
from deskroll.models.base import ModelRefused
from deskroll.models.listed import is_listed, unlisted
from deskroll.models.plugin import ModelPlugin, model_kind
from deskroll.models.settings import ModelSettings
from deskroll.rollout.config import RunConfig

_log = logging.getLogger(__name__)
_CHECK_S = 15.0


@asynccontextmanager
async def answering_models(config: RunConfig) -> AsyncIterator[RunConfig]:
    """The settings with models that answer: served where that is needed, and checked."""
    limited = next((name for name in ("max_cost_usd", "run_cost_usd") if getattr(config.limits, name) is not None), "")
    async with AsyncExitStack() as stack:
        served = {}
        if (agent := agent_kind(config.agent)).protocol != NO_MODEL:
            kind = agents_model(agent, config.model)
            served["model"] = await stack.enter_async_context(kind.serve(config.model, "model"))
            await _check_model(served["model"], "model", kind, limited=limited)
        if config.judge is not None and config.evaluate:
            kind = model_kind(config.judge, name="judge")
            served["judge"] = await stack.enter_async_context(kind.serve(config.judge, "judge"))
            await _check_model(served["judge"], "judge", kind, limited=limited)
        yield config.model_copy(update=served)


async def _check_model(model: ModelSettings, name: str, kind: type[ModelPlugin], *, limited: str) -> None:
    """Find out before any desktop is started that a model cannot be asked; `limited`: a limit that needs its price."""
    settings = model.model_copy(update={"timeout": _CHECK_S, "retries": 1})
    async with kind(settings) as client:
        try:
            listed = await client.check()
            if listed and not is_listed(model.name, listed):
                _log.warning("%s: %s", name, unlisted(model.name, client.shown, listed))
            if limited and not client.knows_price:
                unknown = f"the price of {model.name} is not known"
                raise ConfigError(f"limits.{limited} is set, and {unknown}: set {name}.price, too")
        except ModelRefused as error:
            raise ConfigError(f"{name}: {error}") from None
        except ModelError as error:
            raise ConfigError(f"{name}: {error}; {kind.how_to_reach(name)}, or name a script: scripted:FILE") from None
