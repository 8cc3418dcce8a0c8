"""Tasks beside a spec: whether they can be run with it, what desktops they need, and what must be made ready first.

Guarantees: whatever is wrong and can be told without a model or a desktop is one `InputError` that names the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deskroll.agents import agent_kind, agent_settings
from deskroll.desktops.base import DesktopSpec
from deskroll.envs import Env, env_kind, env_settings
from deskroll.errors import InputError, did_you_mean, foreign_code, plain
from deskroll.registry import Registry
from deskroll.report.words import counted
from deskroll.rollout.spec import EpisodeSpec
from deskroll.types import Task

_MOST_NAMED = 3
"""Tasks that are named where many are meant."""


def desktops_wanted(spec: EpisodeSpec, tasks: Sequence[Task], where: str = "") -> list[tuple[Task, DesktopSpec]]:
    """Each task that needs a desktop, and which; `where` the tasks are from, for messages."""
    own = env_kind(spec.env)
    found: dict[str, tuple[type[Env], object]] = {spec.env: (own, env_settings(own, spec.env_options, spec.env))}
    wanted = []
    for task in tasks:
        name, options = spec.of_task(task.env)
        try:
            if name not in found:
                kind = _tasks_own_kind(name)
                found[name] = (kind, env_settings(kind, options, name))
            kind, settings = found[name]
            with foreign_code(f"env {name}, desktop_spec"):
                desktop = kind.desktop_spec(task, settings)
        except InputError as error:
            raise _refused(where, task, error) from None
        if desktop is not None:
            wanted.append((task, desktop))
    return wanted


def _tasks_own_kind(name: str) -> type[Env]:
    """The kind of environment that a task names: one that was installed, never code by its place."""
    if ":" in name:
        raise InputError(f"env is {name!r}: tasks are data, and name no code; name it with --env")
    known = [entry.name for entry in Registry().entries("env")]
    if name not in known:
        raise InputError(f"env is {plain(name)!r}{did_you_mean(name, known)}; a task may name: {', '.join(known)}")
    return env_kind(name)


def check_tasks(spec: EpisodeSpec, tasks: Sequence[Task], where: str = "") -> None:
    """That every task can be prepared, attempted by this agent, and judged at all; `where` they are from."""
    wanted = desktops_wanted(spec, tasks, where)  # first: it names the task whose environment is not there
    kinds = {name: env_kind(name) for name in {task.env or spec.env for task in tasks}}
    agent = agent_kind(spec.agent)
    settings = agent_settings(agent, spec.agent_options, spec.agent)
    screens = {task.id: (desktop.width, desktop.height) for task, desktop in wanted}
    for task in tasks:
        try:
            with foreign_code(f"env {task.env or spec.env}, check_task"):
                kinds[task.env or spec.env].check_task(task)
            with foreign_code(f"agent {spec.agent}, check_task"):
                agent.check_task(task, settings, screens.get(task.id))
        except InputError as error:
            raise _refused(where, task, error) from None


def unjudged(spec: EpisodeSpec, tasks: Sequence[Task]) -> str:
    """Which tasks will have no score because nothing says what is right, in one line; empty: none."""
    if not spec.evaluate:
        return ""
    found = [task.id for task in tasks if not env_kind(task.env or spec.env).is_judged(task)]
    if not found:
        return ""
    some = ", ".join(map(plain, found[:_MOST_NAMED])) + (", ..." if len(found) > _MOST_NAMED else "")
    have = "has" if len(found) == 1 else "have"
    return (
        f"{len(found):,} of {counted(len(tasks), 'task')} {have} neither an answer nor an evaluator, "
        f"so that there will be no score: {some}"
    )


def prepare_envs(spec: EpisodeSpec, tasks: Sequence[Task], folder: Path) -> dict[str, str]:
    """Make ready what the environments of these tasks share, which may take long; returns what each found."""
    prepared: dict[str, str] = {}
    by_kind: dict[str, list[Task]] = {}
    for task in tasks:
        by_kind.setdefault(task.env or spec.env, []).append(task)
    for name, those in by_kind.items():
        kind = env_kind(name)
        settings = env_settings(kind, spec.of_task(name)[1], name)
        with foreign_code(f"env {name}, prepare"):
            found = kind.prepare(those, settings, folder)
        prepared[name] = str(found or "")  # a plug-in may well return nothing
    return prepared


def _refused(where: str, task: Task, error: InputError) -> InputError:
    """What is wrong with a task, with its name once."""
    name = f"task {task.id!r}"
    prefix = f"{where}: " if where else ""
    return InputError(f"{prefix}{error if str(error).startswith(name) else f'{name}: {error}'}")
