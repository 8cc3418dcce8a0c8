"""What the page of a run says, as plain data: the header, one row an episode, and each episode's steps.

All text that comes from tasks, models or desktops is made printable and cut here; escaping it for HTML and JSON is the
business of `html.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from deskroll.actions import Action
from deskroll.errors import InputError, MissingDependency, StoreError, plain
from deskroll.models.messages import Message
from deskroll.report import words
from deskroll.report.outcome import outcome_of, score_of, succeeded, unscored_because
from deskroll.report.results import Results
from deskroll.report.screens import Screens, Thumbnails
from deskroll.store import AttemptReader
from deskroll.types import Episode, Record, Step

MAX_EPISODES = 2_000
"""Rows of the page; beyond that, those that were no success come first."""
MAX_STEPS = 200
_LONG, _SHORT, _CONFIG = 4_000, 300, 50_000
_OF_DESKTOPS = ("provider", "num_vms")
_FACTS = ("tasks", "env", "agent", "model", "provider", "num_vms", "num_rollouts", "group_size", "max_turns", "seed")
"""Names in a config that are worth a place in the header."""


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


class StepView(Record, frozen=True):
    """One step of an episode, to be looked at."""

    index: int
    thought: str
    actions: list[str]
    results: list[str]
    took: str
    screen: int | None
    """Its place among the episode's pictures."""


class EpisodeView(Record, frozen=True):
    """What is shown when an episode is opened."""

    steps: list[StepView]
    screens: list[str]
    start: int | None
    """The place among the pictures of what the model saw before its first action."""
    note: str


def facts(results: Results) -> list[Fact]:
    """The header: what ran, with what, when."""
    info, found = results.info, []
    desktops = any(episode.desktop for episode in results.outcomes)
    asked = not results.outcomes or any(episode.model for episode in results.outcomes)
    for name in _FACTS:
        if (name in _OF_DESKTOPS and not desktops) or (name == "model" and not asked):
            continue
        value = info.config.get(name)
        if isinstance(value, Mapping):
            value = next((value[key] for key in ("name", "model", "kind", "id", "path") if value.get(key)), None)
        if isinstance(value, (str, int, float)) and value != "":
            found.append(Fact(name=name.replace("_", " "), value=_short(str(value))))
    options, judge = info.config.get("env_options"), info.config.get("judge")
    metric = options.get("evaluation_metric") if isinstance(options, Mapping) else None
    found.append(Fact(name="metric", value=_short(str(metric or ""))))
    found.append(Fact(name="judge", value=_short(str(judge.get("name", ""))) if isinstance(judge, Mapping) else ""))
    if info.created_at:
        found.append(Fact(name="started", value=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(info.created_at))))
    found.append(Fact(name="deskroll", value=_short(f"{info.version} {info.git_commit[:12]}")))
    return [fact for fact in found if fact.value]


def config(results: Results) -> str:
    """The resolved config and the command, to be read."""
    shown = {"command": results.info.command, "machine": results.info.machine, "config": results.info.config}
    text = msgspec.json.format(msgspec.json.encode(shown, order="deterministic"), indent=2).decode()
    return plain(text, _CONFIG, keep="\n\t")


def chosen(results: Results) -> list[Episode]:
    """The episodes of the table, in order; of too many, those first that were no success."""
    episodes = sorted(results.outcomes, key=lambda episode: episode.key)
    if len(episodes) > MAX_EPISODES:
        episodes.sort(key=succeeded)
    return episodes[:MAX_EPISODES]


def row(number: int, episode: Episode, results: Results) -> Row:
    """An episode in the table."""
    score, key = score_of(episode), episode.key
    seconds = max(0.0, episode.ended_at - episode.started_at)
    return Row(
        number=number,
        outcome=outcome_of(episode).value,
        task=_short(key.task),
        domain=_short(episode.domain),
        phase=_short(key.phase),
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
        facts=tuple(_episode_facts(episode, results)),
    )


def _episode_facts(episode: Episode, results: Results) -> Iterable[Fact]:
    usage, failure = episode.usage, episode.failure
    calls = words.counted(usage.calls, "call")
    used = f"{usage.prompt_tokens:,} in, {usage.completion_tokens:,} out, {calls}"
    if usage.cost_usd is not None:
        used += f", {words.money(usage.cost_usd, 0, usage.calls)}"
    said = {
        "task": _long(results.question(episode.key)),
        "answer": _long(episode.answer or ""),
        "score": _long(episode.score.reason),
        "failure": _long(f"{failure.failure_class}: {failure.kind}: {failure.message}") if failure else "",
        "model": _short(" ".join((episode.model, *episode.versions))),
        "desktop": _short(episode.desktop),
        "attempt": str(episode.attempt) if episode.attempt > 1 else "",
        "time": _times(episode.seconds),
        "tokens": used if usage.calls else "",
    }  # fmt: skip
    return (Fact(name=name, value=value) for name, value in said.items() if value)


def view(results: Results, episode: Episode, screens: Screens, thumbnails: Thumbnails) -> EpisodeView:
    """The steps and screens of the attempt that counts."""
    attempt = results.run.attempt(episode.key, episode.attempt)
    try:
        steps = attempt.steps()
    except (StoreError, MissingDependency) as error:
        return EpisodeView(steps=[], screens=[], start=None, note=_long(f"Its steps cannot be read: {error}"))
    shown = steps[:MAX_STEPS]
    start = _first_screen(attempt, steps) if screens is Screens.ALL else ""
    seen = [step.screen for step in (shown if screens is Screens.ALL else steps) if step.screen]
    wanted = {Screens.ALL: [start, *seen], Screens.LAST: seen[-1:], Screens.NONE: []}[screens]
    pictures = _pictures(attempt, wanted, thumbnails)
    places = {name: place for place, name in enumerate(pictures)}
    more = len(steps) - len(shown)
    return EpisodeView(
        steps=[_step(step, places) for step in shown],
        screens=list(pictures.values()),
        start=places.get(start),
        note=f"{words.counted(more, 'more step')} in the run's folder." if more > 0 else _no_steps(steps),
    )


def _no_steps(steps: list[Step]) -> str:
    return "" if steps else "It has no steps."


def _pictures(attempt: AttemptReader, wanted: Iterable[str], thumbnails: Thumbnails) -> dict[str, str]:
    """Data URLs by the names of screens, each once; what cannot be read or has no room is left out."""
    pictures: dict[str, str] = {}
    for name in filter(None, dict.fromkeys(wanted)):
        try:
            url = thumbnails.url(attempt.image(name))
        except StoreError:
            thumbnails.left_out += 1
            continue
        if url is not None:
            pictures[name] = url
    return pictures


def _first_screen(attempt: AttemptReader, steps: Sequence[Step]) -> str:
    """The name of the last screen that the first request showed; empty where it showed none."""
    sent = steps[0].sent if steps else None
    try:
        messages = attempt.messages()[: sent.messages if sent is not None else None]
    except StoreError:
        return ""
    found = ""
    for stored in messages:
        try:
            message = Message.restore(stored, attempt.image)
        except (InputError, UnicodeDecodeError):
            continue
        if message.role == "assistant":
            break
        found = message.names[-1] if message.names else found
    return found


def _step(step: Step, places: Mapping[str, int]) -> StepView:
    said = step.thought or (step.completion.text if step.completion else "")
    return StepView(
        index=step.index,
        thought=_long(said),
        actions=[shown_action(action) for action in step.actions],
        results=[_short(result) for result in step.results if result],
        took=_times(step.seconds),
        screen=places.get(step.screen),
    )


def _times(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{plain(name, 30)} {words.duration(took)}" for name, took in seconds.items() if took >= 0.001)


def shown_action(action: Action) -> str:
    """An action as a person reads it: `CLICK x=10 y=20`."""
    fields = msgspec.to_builtins(action)
    kind = fields.pop("type")
    return _short(" ".join([kind, *(f"{name}={_value(value)}" for name, value in fields.items())]))


def _value(value: object) -> str:
    return msgspec.json.encode(value).decode() if not isinstance(value, (int, float)) else f"{value:g}"


def _long(text: str) -> str:
    return plain(text, _LONG, keep="\n\t")


def _short(text: str) -> str:
    return plain(text, _SHORT)
