"""DrivenEpisodes: episodes of a loop that is not ours: it begins them, answers for their model, and learns the outcome.

A runtime in a thread and an event loop of its own, since whoever drives it may have a new loop for each group, and must
not hold it up: desktops, permits, store and journal are those of every run, in a folder of their own. Any loop of the
process may use it. Guarantees: an episode that is abandoned has ended when `abandon` returns, and its desktop is with
the pool; at the end of the program all of it is closed.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from deskroll.errors import ConfigError, DeskrollError, InputError, ModelError, plain
from deskroll.models.handed import HANDED_KIND, HandedEpisode, HandedModel, HandedRequest
from deskroll.rollout.bound_model import session_of
from deskroll.rollout.config import Resources, RunConfig
from deskroll.rollout.folder import new_root
from deskroll.rollout.job import Batch, Job
from deskroll.rollout.job_run import JobRun
from deskroll.rollout.main_thread import outlasting_main_thread
from deskroll.rollout.retry import Retries
from deskroll.rollout.runtime import Runtime
from deskroll.rollout.spec import EpisodeSpec
from deskroll.store import AttemptReader
from deskroll.types import Completion, Episode, EpisodeKey, Task

T = TypeVar("T")
TRAIN, EVAL = "train", "eval"
_UNWANTED = "whoever drives it does not want it any more"
_ALL = 1_000_000
_ONCE = Retries(model=0, desktop=0, setup=0, env=0, evaluator=0)


class EpisodeUnscored(DeskrollError):
    """An episode ended without a score: it cannot be learned from. The message says why."""


class RuntimeGone(DeskrollError):
    """The runtime of driven episodes has ended, and with it whatever ran there."""


class DrivenEpisode:
    """One episode. Made by `DrivenEpisodes.begin`; `abandon` it in any case, also after its end."""

    def __init__(self, host: DrivenEpisodes, key: EpisodeKey) -> None:
        self.key = key
        self.handed = HandedEpisode()
        self.ended: Future[Episode] = Future()
        """Done with its outcome."""
        self._host = host

    async def request(self) -> HandedRequest | None:
        """What its agent asks next; None: it has ended, see `outcome`."""
        return await self._host.call(self.handed.request())

    def answer(self, completion: Completion) -> None:
        """Answer the last request."""
        self._host.soon(lambda: self.handed.answer(completion))

    def refuse(self, error: ModelError) -> None:
        """Fail the last request: by that the episode ends, as any other whose model has failed so."""
        self._host.soon(lambda: self.handed.refuse(error))

    async def outcome(self) -> Episode:
        """Its outcome, once it has ended; `EpisodeUnscored` where it has no score."""
        episode = await asyncio.shield(asyncio.wrap_future(self.ended))
        if episode.points is None:
            raise EpisodeUnscored(f"{session_of(self.key)}: {episode.score.reason}")
        return episode

    async def abandon(self) -> None:
        """End it, if it has not ended, and wait until its desktop is given back."""
        if not self.ended.done():
            self._host.give_up(self.key)
            ended = asyncio.wrap_future(self.ended)
            await asyncio.wait((ended,))
            ended.exception()  # whatever it is, the episode has ended


class DrivenEpisodes:
    """Made by `drive`, once a process for the same settings."""

    def __init__(self, config: RunConfig) -> None:
        if config.run_id:
            raise ConfigError(
                f"run_id is {plain(config.run_id)!r}, and a loop that is not ours cannot go on with a run: what was "
                "done there would be handed out as if it were sampled now. Leave run_id out: a new run is made in "
                "output_dir"
            )
        self.folder = new_root(config)
        """Where its episodes are kept."""
        self._config = config
        self._loop: asyncio.AbstractEventLoop | None = None
        self._model = HandedModel(_spec(config).model)
        self._numbers = itertools.count()
        self._jobs: dict[str, tuple[JobRun, asyncio.Queue[Batch], asyncio.Task[None]]] = {}
        self._folders: dict[str, list[str]] = {}
        """Where the files of each phase's tasks are: a job has one folder."""
        self._naming = threading.Lock()
        self._live: dict[EpisodeKey, DrivenEpisode] = {}
        self._closing: asyncio.Event
        self._runtime: Runtime
        self._opened: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="deskroll-driven")

    # --- for whoever drives ---

    async def open(self) -> None:
        """Wait until it is open; whatever cannot be had for it is raised here."""
        await asyncio.shield(asyncio.wrap_future(self._opened))

    @property
    def over(self) -> bool:
        """Whether it has ended, or could not be opened."""
        return not self._thread.is_alive()

    def begin(self, task: Task, phase: str = TRAIN, folder: str = "") -> DrivenEpisode:
        """Begin an episode of a task, in a round of its own. `folder`: of the files that the task names.

        A phase's tasks of a second folder are a job of their own: `train-2`.
        """
        key = EpisodeKey(phase=self._job_name(phase, folder), round=next(self._numbers), task=task.id, sample=0)
        episode = self._live[key] = DrivenEpisode(self, key)
        self.soon(lambda: self._begin(episode, task, folder))
        return episode

    def _job_name(self, phase: str, folder: str) -> str:
        with self._naming:
            folders = self._folders.setdefault(phase, [])
            if folder not in folders:
                folders.append(folder)
            number = folders.index(folder) + 1
        return phase if number == 1 else f"{phase}-{number}"

    def attempt(self, outcome: Episode) -> AttemptReader:
        """What is kept of an episode that has ended; it reads files."""
        return self._runtime.store.attempt(outcome.key, outcome.attempt)

    def give_up(self, key: EpisodeKey) -> None:
        """An episode is not wanted any more; its outcome says so."""
        self.soon(lambda: self._give_up(key))

    def close(self) -> None:
        """End all of it, and wait for that; not from a loop's own thread."""
        if self._loop is not None and not self.over:
            self.soon(self._closing.set)
        self._thread.join()

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in its loop."""
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._require()))
        except RuntimeError:
            work.close()
            raise _gone(self.folder) from None

    def soon(self, work: Callable[[], object]) -> None:
        """Do something in its loop, in the order in which it is asked for."""
        try:
            self._require().call_soon_threadsafe(work)
        except RuntimeError:
            raise _gone(self.folder) from None

    def _require(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or not self._opened.done():
            raise RuntimeError("it is not open: await open() first")
        return self._loop

    # --- in its own thread ---

    def start(self) -> None:
        """Open it."""
        self._thread.start()

    def _run(self) -> None:
        import uvloop  # noqa: PLC0415  (as late as the loop is made)

        error: BaseException = _gone(self.folder)
        try:
            uvloop.run(self._serve())
        except BaseException as raised:  # noqa: BLE001  (whoever drives is told, in another thread)
            error = raised if isinstance(raised, Exception) else error
        if not self._opened.done():
            self._opened.set_exception(error)
        for key in list(self._live):
            self._live.pop(key).ended.set_exception(error)

    async def _serve(self) -> None:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        resources = _resources(self._config)
        with outlasting_main_thread(endless=True):
            async with Runtime.open(resources, store=self.folder, model=self._model) as self._runtime:
                self._opened.set_result(None)
                try:
                    await self._closing.wait()
                finally:
                    for run, _, taking in list(self._jobs.values()):
                        await run.cancel()
                        await asyncio.wait((taking,))

    def _begin(self, episode: DrivenEpisode, task: Task, folder: str) -> None:
        key = episode.key
        if key not in self._live:
            return  # the job that it would have been of has failed since, and it with that
        self._model.expect(session_of(key), episode.handed)
        try:
            if key.phase not in self._jobs:
                self._start(key.phase, folder)
        except Exception as error:  # noqa: BLE001  (whoever drives is told)
            self._fail(key, error)
        else:
            self._jobs[key.phase][1].put_nowait(Batch(tasks=(task,), round=key.round))

    def _start(self, phase: str, folder: str) -> None:
        queue: asyncio.Queue[Batch] = asyncio.Queue()
        run = self._runtime.run(Job(phase, self._batches(phase, queue), _spec(self._config), folder=folder))
        self._jobs[phase] = run, queue, asyncio.create_task(self._take(phase, run))

    async def _batches(self, phase: str, queue: asyncio.Queue[Batch]) -> AsyncIterator[Batch]:
        """What is begun; a task that cannot be run fails its own episode, and no other."""
        while True:
            batch = await queue.get()
            try:
                yield batch
            except InputError as wrong:
                for task in batch.tasks:
                    self._fail(EpisodeKey(phase=phase, round=batch.round, task=task.id, sample=0), wrong)

    async def _take(self, phase: str, run: JobRun) -> None:
        """Tell each episode's driver how it has ended; where the job itself has, all of them."""
        error: BaseException = _gone(self.folder)
        try:
            async for group in run:
                (outcome,) = group.episodes
                if (episode := self._live.pop(outcome.key, None)) is not None:
                    episode.ended.set_result(outcome)
                    self._end(episode)
        except Exception as raised:  # noqa: BLE001  (it is told to those who wait)
            error = raised
        finally:
            self._jobs.pop(phase, None)
            for key in list(self._live):
                if key.phase == phase:
                    self._fail(key, error)

    def _fail(self, key: EpisodeKey, error: BaseException) -> None:
        if (episode := self._live.pop(key, None)) is not None:
            episode.ended.set_exception(error)
            self._end(episode)

    def _end(self, episode: DrivenEpisode) -> None:
        self._model.end_session(session_of(episode.key))  # whether or not an attempt was begun, which ends it, too
        episode.handed.end()

    def _give_up(self, key: EpisodeKey) -> None:
        if key in self._live and key.phase in self._jobs:
            self._jobs[key.phase][0].give_up(key.round, key.task, _UNWANTED)


def _spec(config: RunConfig) -> EpisodeSpec:
    """What its episodes are made of: whoever drives is their model, and tries again where that is wanted."""
    fields = {name: getattr(config, name) for name in EpisodeSpec.model_fields}
    model = config.model.model_copy(update={"kind": HANDED_KIND, "exact": False})
    return EpisodeSpec(**fields | {"model": model, "retries": _ONCE})


def _resources(config: RunConfig) -> Resources:
    """In this process, where the model is; groups are whoever drives' own matter."""
    fields = {name: getattr(config, name) for name in Resources.model_fields}
    return Resources(**fields | {"backend": "inline", "backend_options": {}, "max_concurrent_rollouts": _ALL})


def _gone(folder: str) -> RuntimeGone:
    return RuntimeGone(f"the runtime of {folder} has ended: nothing can be begun there, and what ran was given up")


_shared: dict[str, DrivenEpisodes] = {}
_sharing = threading.Lock()


async def drive(config: RunConfig) -> DrivenEpisodes:
    """The episodes of these settings, opened once a process.

    There is one for all, because whoever drives makes its environments out of pickles and settings, by which no open
    runtime can be handed on.
    """
    name = config.model_dump_json()
    with _sharing:
        if (found := _shared.get(name)) is None or found.over:
            found = _shared[name] = DrivenEpisodes(config)
            found.start()
    await found.open()
    return found
