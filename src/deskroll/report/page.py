"""What the page of a run says, as plain data: the header, and one row an episode; `episode_view` has their steps.

All text that comes from tasks, models or desktops is made printable and cut here; escaping it for HTML and JSON is the
business of `html.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import msgspec

from deskroll.errors import plain
from deskroll.report import words
from deskroll.report.episode_view import long, short, times
from deskroll.report.outcome import outcome_of, unscored_because
from deskroll.report.results import Results
from deskroll.store.paths import attempt_folder
from deskroll.types import Episode, Record

MAX_EPISODES = 2_000
"""Rows of the page; beyond that, those that were no success come first."""
_LONGEST_CONFIG = 50_000
_OF_DESKTOPS = ("provider", "num_vms")
_FACTS = (
    "tasks", "env", "agent", "model", "provider", "num_vms", "num_rollouts", "group_size", "limits.max_turns",
    "model.seed", "agent_options.seed",
)  # fmt: skip
"""Settings that are worth a place in the header, under the last part of their names."""


class Fact(Record, frozen=True):
    """A line of the header."""

    name: str
    value: str


class Row(Record, frozen=True):
    """An episode in the table."""

    number: int
    outcome: str
    task: str
    domain: str
    phase: str
    round: int
    sample: int
    score: float | None
    why: str
    """Where it has no score: whose fault."""
    stop: str
    steps: int
    seconds: float
    duration: str
    cost_usd: float | None
    tokens: int
    facts: tuple[Fact, ...]


def facts(results: Results) -> list[Fact]:
    """The header: what ran, with what, when."""
    info, settings, found = results.info, results.settings, []
    desktops = any(episode.desktop for episode in results.outcomes)
    asked = not results.outcomes or any(episode.model for episode in results.outcomes)
    for name in _FACTS:
        if (name in _OF_DESKTOPS and not desktops) or (name == "model" and not asked):
            continue
        value = _setting(settings, name)
        if isinstance(value, Mapping):
            value = next((value[key] for key in ("name", "model", "kind", "id", "path") if value.get(key)), None)
        if isinstance(value, (str, int, float)) and value != "":
            found.append(Fact(name=name.rpartition(".")[2].replace("_", " "), value=short(str(value))))
    options, judge = settings.get("env_options"), settings.get("judge")
    metric = options.get("evaluation_metric") if isinstance(options, Mapping) else None
    found.append(Fact(name="metric", value=short(str(metric or ""))))
    found.append(Fact(name="judge", value=short(str(judge.get("name", ""))) if isinstance(judge, Mapping) else ""))
    if info.created_at:
        found.append(Fact(name="started", value=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(info.created_at))))
    found.append(Fact(name="deskroll", value=short(f"{info.version} {info.git_commit[:12]}")))
    return [fact for fact in found if fact.value]


def _setting(config: Mapping[str, object], name: str) -> object:
    """A setting by its dotted name; None where the config does not have it."""
    value: object = config
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def config(results: Results) -> str:
    """The resolved config and the command, to be read."""
    shown = {"command": results.info.command, "machine": results.info.machine, "config": results.info.config}
    text = msgspec.json.format(msgspec.json.encode(shown, order="deterministic"), indent=2).decode()
    return plain(text, _LONGEST_CONFIG, keep="\n\t")


def chosen(results: Results) -> list[Episode]:
    """The episodes of the table, in order; of too many, those first that were no success."""
    episodes = sorted(results.outcomes, key=lambda episode: episode.key)
    if len(episodes) > MAX_EPISODES:
        episodes.sort(key=lambda each: each.success)
    return episodes[:MAX_EPISODES]


def row(number: int, episode: Episode, results: Results) -> Row:
    """An episode in the table."""
    score, key = episode.points, episode.key
    seconds = max(0.0, episode.ended_at - episode.started_at)
    return Row(
        number=number,
        outcome=outcome_of(episode).value,
        task=short(key.task),
        domain=short(episode.domain),
        phase=short(key.phase),
        round=key.round,
        sample=key.sample,
        score=score,
        why=unscored_because(episode) if score is None else "",
        stop=episode.stop.value.replace("_", " "),
        steps=episode.steps,
        seconds=round(seconds, 3),
        duration=words.duration(seconds),
        cost_usd=episode.usage.cost_usd,
        tokens=episode.usage.prompt_tokens + episode.usage.completion_tokens,
        facts=tuple(episode_facts(episode, results)),
    )


def episode_facts(episode: Episode, results: Results) -> Iterable[Fact]:
    """What there is to say of an episode as a whole."""
    usage, failure = episode.usage, episode.failure
    calls = words.counted(usage.calls, "call")
    used = f"{usage.prompt_tokens:,} in, {usage.completion_tokens:,} out, {calls}"
    if usage.cost_usd is not None:
        used += f", {words.money(usage.cost_usd, 0, usage.calls)}"
    found = episode.score.found
    said = {
        "task": long(results.question(episode.key)),
        "answer": long(episode.answer or ""),
        "score": long(episode.score.reason),
        "found": long(found) if found is not None and found != episode.answer else "",
        "expected": long(episode.score.expected or ""),
        "failure": long(f"{failure.failure_class}: {failure.kind}: {failure.message}") if failure else "",
        "traceback": short(f"{attempt_folder(episode.key, episode.attempt)}/{failure.trace}")
        if failure and failure.trace
        else "",
        "model": short(" ".join((episode.model, *episode.versions))),
        "desktop": short(episode.desktop),
        "attempt": str(episode.attempt) if episode.attempt > 1 else "",
        "time": times(episode.seconds),
        "tokens": used if usage.calls else "",
    }  # fmt: skip
    return (Fact(name=name, value=value) for name, value in said.items() if value)
