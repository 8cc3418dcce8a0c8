"""JobState: what the parts of a job share while it runs: what runs, what is done, whether it is stopping.

Guarantee: once it is stopped, nothing of the job begins any more; what had not begun is given back.
"""

from __future__ import annotations

import asyncio

from deskroll.errors import FailureClass, FailureKind, ModelError
from deskroll.rollout.engine import Engine
from deskroll.rollout.job import Job
from deskroll.rollout.orders import AttemptName
from deskroll.rollout.spec import Definition
from deskroll.store.journal import Failed
from deskroll.types import Episode

_NO_MODEL = 20
"""So many attempts in a row (or twice what is in flight) must fail by the model's server for the job to stop."""


class JobState:
    """One job that runs."""

    def __init__(self, job: Job, engine: Engine) -> None:
        self.job = job
        self.engine = engine
        self.definition = Definition.of(job.spec, job.folder)
        """What orders name by its digest: with the code as it is now, and where its models answer, once they do."""
        self.planned = self.done = 0
        """Episodes; and those of them that have an outcome."""
        self.running: set[AttemptName] = set()
        self.stopped = asyncio.Event()
        """Whether nothing new is started any more."""
        self.ended_now = False
        """Whether it was told to end what runs, too."""
        self.finishing: asyncio.Future[int] | None = None
        """How many attempts had begun when it was told to stop."""
        self._no_model = 0
        """Attempts in a row that failed by the model's server."""

    @property
    def stopping(self) -> bool:
        """Whether nothing new is started any more."""
        return self.stopped.is_set()

    def stop(self, *, now: bool) -> None:
        """Start nothing more, and give back what has not begun; `now`: end what runs, too."""
        self.stopped.set()
        self.engine.limits.close(self.job.name)
        if self.finishing is None:
            self.finishing = self.engine.backend.give_back(set(self.running))
        if now:
            self.ended_now = True
            for key, attempt in list(self.running):
                self.engine.backend.stop(key, attempt, None)

    def stop_if_no_model(self, episode: Episode) -> None:
        """Where the model's server answers nobody, no other episode shall be spent on it."""
        failure = episode.failure
        blamed = None if failure is None else failure.failure_class
        if blamed is FailureClass.CANCELLED:
            return  # one that was stopped says nothing
        if failure is None or blamed is not FailureClass.MODEL:
            self._no_model = 0
            return
        self._no_model += 1
        forbidden = failure.kind is FailureKind.MODEL_FORBIDDEN
        if forbidden or self._no_model > max(_NO_MODEL, 2 * self.engine.limits.episodes.most):
            self.engine.store.write(Failed(episode=episode, epoch=self.engine.store.epoch))
            self.stop(now=False)  # whoever has just got this one's permit asks for nothing any more
            many = "" if forbidden else f"{self._no_model} attempts in a row failed by the model's server; the last: "
            raise ModelError(f"{many}{failure.message}; the run stops here: mend that, and resume it")
