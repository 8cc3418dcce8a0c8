"""`deskroll.run`: tasks in, episodes out, from plain Python: a script, a notebook, a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deskroll.conduct.loops import run_to_end
from deskroll.conduct.run import conduct
from deskroll.config import check
from deskroll.errors import ConfigError, InputError, plain
from deskroll.importing import refuse_while_importing
from deskroll.models.settings import ModelSettings, load_env
from deskroll.report.words import counted
from deskroll.rollout.config import RunConfig
from deskroll.rollout.job import read_tasks
from deskroll.rollout.loading import PHASE, check_run, load_run, resume_run
from deskroll.store import Run
from deskroll.types import Episode, Task


class Episodes(list[Episode]):
    """The outcome of every episode, in the order of the plan, and where all that is known of them is kept."""

    def __init__(self, episodes: Sequence[Episode], folder: str) -> None:
        super().__init__(episodes)
        self.folder = folder
        """The run's folder: for `deskroll.open_run`, or `deskroll report`."""

    def __repr__(self) -> str:
        """A line for each, as a notebook shows it; all of one is `episodes[0]`."""
        return "\n".join((*map(_line, self), f"{counted(len(self), 'episode')}, kept in {self.folder}"))


def run(
    tasks: str | Path | Sequence[Task] | Sequence[Mapping[str, Any]] = "",
    *,
    agent: str | None = None,
    model: str | Mapping[str, Any] | ModelSettings | None = None,
    resume: str | Path = "",
    force: bool = False,
    progress: bool = True,
    **settings: Any,
) -> Episodes:
    """Run an agent on tasks, in parallel, and score every attempt; blocks until all of it is done.

    `tasks` are what `deskroll run` takes (a file, a folder, `suite:NAME`), tasks, or objects as they stand in a file.
    `model` is a name, or settings of a model by name; every other setting of a run (docs/running.md) has its own name
    here: `env`, `num_rollouts`, `num_vms`, `group_size`, `limits={"max_turns": 10}`. `resume` goes on with the run in
    that folder: only what is missing is done (`force`: although the tasks or the settings have changed). Bad input is
    an `InputError`; Ctrl-C releases everything and is raised again, with the way to go on.

        episodes = deskroll.run("tasks.jsonl", agent="chat", model="my-model", num_vms=4)
    """
    refuse_while_importing("deskroll.run was called")
    load_env(Path.cwd())
    if agent is not None:
        settings["agent"] = agent
    if model is not None:
        settings["model"] = model
    root, config, loaded = _read(tasks, str(resume), settings)
    folders: list[str] = []
    try:
        work = conduct(config, loaded, root, force=force, quiet=not progress, opened=folders.append)
        ended = run_to_end(work)
    except KeyboardInterrupt as error:
        error.args = tuple(map(_go_on, folders))
        raise
    if ended.interrupted and ended.signalled:
        raise KeyboardInterrupt(_go_on(ended.folder))
    run = Run.open(ended.folder)
    outcomes = {each.key: each for each in run.outcomes()}
    own = (key for key in run.index.keys() if key.phase == PHASE)  # noqa: SIM118  (it is no dict)
    return Episodes([outcomes[key] for key in own if key in outcomes], ended.folder)


def _read(
    tasks: str | Path | Sequence[Task] | Sequence[Mapping[str, Any]], resume: str, settings: dict[str, Any]
) -> tuple[str, RunConfig, list[Task]]:
    """The folder of the run that goes on (or nothing), the settings and the tasks."""
    overrides = list(settings.items())
    if isinstance(tasks, str | Path):
        overrides += [("tasks", str(tasks))] if tasks else []
        return resume_run(resume, overrides) if resume else ("", *load_run(None, overrides))
    if "tasks" in settings or "limit" in settings or "only" in settings:
        raise ConfigError("tasks are given as they are: choose among them there; tasks, limit and only are for files")
    if isinstance(tasks, Mapping):
        raise InputError("tasks are a list; for a single one write [task]")
    if not isinstance(tasks, Sequence):
        raise InputError(f"tasks is a {type(tasks).__name__}; give a path, or a list of tasks")
    loaded = read_tasks(tasks)
    config = check(RunConfig, settings, "deskroll.run")
    return resume_run(resume, overrides, loaded) if resume else ("", *check_run(config, loaded))


def _go_on(folder: str) -> str:
    return f"go on with:  deskroll.run(..., resume={folder!r})"


def _line(episode: Episode) -> str:
    key, score = episode.key, episode.score
    points = "unscored" if score.value is None else f"{score.value:.2f}"
    return f"{key.task}/{key.sample}  {points}  {plain(score.reason)}"
