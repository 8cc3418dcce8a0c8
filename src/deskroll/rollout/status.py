"""RunStatus: what a live run does at this moment, for people and programs, and what of it needs attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from deskroll.desktops.pool import PoolStatus
from deskroll.desktops.pool.meter import NOTHING_LIMITS
from deskroll.events import EndpointChanged
from deskroll.models.base import EndpointLoad
from deskroll.report.words import counted
from deskroll.rollout.backends import WorkerStatus
from deskroll.rollout.engine import JobStatus
from deskroll.rollout.orders import Activity
from deskroll.rollout.service_status import ServiceStatus
from deskroll.rollout.tally import Standing
from deskroll.rollout.train_status import TrainStatus
from deskroll.store.names import name_of
from deskroll.types import Record, Stage

_ANSWERING = (Stage.ACT, Stage.SETTLE)
"""Stages in which an episode waits for its desktop's answer."""
_BUSY = {Stage.SETUP: "set-up", Stage.SCORE: "evaluation"}
"""Stages in which it may well take its time."""
_UNASKED = ("starting", "closed", "draining")
"""States of a server behind a router in which it gets no request."""


_FAILING_S = 15.0


class RunStatus(Record, frozen=True, omit_defaults=False):
    """All of a run."""

    run_id: str
    folder: str
    pid: int
    epoch: int
    started_at: float
    at: float
    stopping: bool
    used_up: str
    """Which limit of the whole run has stopped it, in words; empty: none."""
    standing: Standing
    jobs: tuple[JobStatus, ...]
    """Those that run."""
    in_flight: int
    waiting: int
    """Episodes that wait for a permit."""
    samples: int
    """Episodes of each task."""
    num_rollouts: int
    max_concurrent_rollouts: int
    stages: dict[str, int]
    """How many episodes are in each stage; of those in flight that are missing here nothing was heard yet."""
    activities: tuple[Activity, ...]
    """What episodes do, those first that have been at it for longest."""
    endpoints: tuple[EndpointLoad, ...]
    workers: tuple[WorkerStatus, ...]
    pool: PoolStatus | None
    attention: tuple[str, ...]
    """What is stuck, where and since when: one line each."""
    limit: str
    """What limits now, in one line."""
    socket: str = ""
    """The unix socket on which it answers."""
    service: ServiceStatus | None = None
    """Of a service: its batches and its source."""
    training: TrainStatus | None = None
    """Of a training run: its step, and what that waits for."""


def ran_by(workers: Sequence[WorkerStatus]) -> dict[int, float]:
    """The running time that each worker said last, by its pid: what its episodes' stages have taken counts by that."""
    return {worker.pid: worker.vitals.ran_s for worker in workers}


def endpoints_of(
    workers: Sequence[WorkerStatus], routed: Mapping[str, EndpointChanged] | None = None
) -> list[EndpointLoad]:
    """Each model server that was asked anything, over all workers; and each behind a router, with what that says."""
    merged = {url: EndpointLoad(url=url) for url in routed or ()}
    for worker in workers:
        # What a worker said some time ago has gone on since.
        age = worker.silent_s
        for each in worker.vitals.endpoints:
            if not each.calls and not each.in_flight:
                continue
            now = msgspec.structs.replace(
                each,
                oldest_s=each.oldest_s + age if each.in_flight else each.oldest_s,
                since_answer_s=None if each.since_answer_s is None else each.since_answer_s + age,
            )
            merged[each.url] = _merge(merged[each.url], now) if each.url in merged else now
    return [_as_routed(load, (routed or {}).get(url)) for url, load in merged.items()]


def _as_routed(load: EndpointLoad, said: EndpointChanged | None) -> EndpointLoad:
    if said is None:
        return load
    error = said.reason or load.last_error
    return msgspec.structs.replace(
        load, state=said.state, version=said.version, limit=said.limit, queue=said.queue, last_error=error
    )


def _merge(one: EndpointLoad, other: EndpointLoad) -> EndpointLoad:
    answers = [each for each in (one.since_answer_s, other.since_answer_s) if each is not None]
    return msgspec.structs.replace(
        one,
        in_flight=one.in_flight + other.in_flight,
        oldest_s=max(one.oldest_s, other.oldest_s),
        since_answer_s=min(answers) if answers else None,
        calls=one.calls + other.calls,
        failures=one.failures + other.failures,
        last_error=other.last_error or one.last_error,
    )


def attention(
    activities: Sequence[Activity], endpoints: Sequence[EndpointLoad], workers: Sequence[WorkerStatus], after: float
) -> list[str]:
    """What does not answer, and for how long."""
    lines = []
    for each in activities:
        waited = each.seconds
        if each.stage in _ANSWERING and each.desktop and waited > after:
            lines.append(
                f"desktop {each.desktop} has not answered for {waited:.0f} s "
                f"(episode {name_of(each.key, each.attempt)}, turn {each.turn + 1})"
            )
        elif each.stage in _BUSY and each.desktop and waited > after:
            lines.append(
                f"desktop {each.desktop} has been busy with the {_BUSY[each.stage]} of episode "
                f"{name_of(each.key, each.attempt)} for {waited:.0f} s"
            )
    for load in endpoints:
        silent = load.silent_s
        error = f"; last error: {load.last_error}" if load.last_error else ""
        if load.state == "closed":
            lines.append(f"model server {load.url} is not asked, for it failed{error}")
        elif _is_failing(load, after):
            since = "yet" if load.since_answer_s is None else f"for {load.since_answer_s:.0f} s"
            lines.append(f"model server {load.url} has given no usable answer {since}, {load.failures} failed{error}")
        elif silent > after:
            wait = f"{counted(load.in_flight, 'request')} {'waits' if load.in_flight == 1 else 'wait'}"
            lines.append(f"model server {load.url} has been silent for {silent:.0f} s, {wait}{error}")
    lines.extend(
        f"{worker.name} (pid {worker.pid}) has said nothing for {worker.silent_s:.0f} s"
        for worker in workers
        if worker.silent_s > after
    )
    return lines


def _is_failing(load: EndpointLoad, after: float) -> bool:
    """Whether a server answers, if at all, with nothing that can be used."""
    return load.failures > 2 and (load.since_answer_s is None or load.since_answer_s > after)


def _server_trouble(endpoints: Sequence[EndpointLoad], asking: int, busy: int) -> str:
    """What is wrong with the model's server, while so many of those that are busy wait for it; empty: nothing is."""
    if endpoints and all(each.state in _UNASKED for each in endpoints):
        states = ", ".join(f"{count} {state}" for state, count in Counter(each.state for each in endpoints).items())
        return f"the model's servers, none of which can be asked ({states})"
    if any(_is_failing(each, _FAILING_S) for each in endpoints):
        return "the model's server, which gives no usable answers"
    silent = max((each.silent_s for each in endpoints), default=0.0)
    if silent > _FAILING_S and asking * 2 > busy:
        return f"the model's server, which has answered nobody for {silent:.0f} s"
    return ""


def _at_rest(left: int, standing: Standing, in_flight: int, *, stopping: bool) -> str:
    """Why no episode is started; empty: some are."""
    begun = in_flight or standing.done > standing.before or standing.retried
    if not begun and not stopping and (left or not standing.planned):
        return "the run is starting"
    if not left:
        return "nothing more is run: a resume does the unscored again" if standing.failed else "nothing is left to do"
    if not in_flight:
        return "nothing runs"
    return "the run stops: no episode is started any more" if stopping else ""


def what_limits(
    standing: Standing,
    in_flight: int,
    num_rollouts: int,
    stages: dict[str, int],
    endpoints: Sequence[EndpointLoad] = (),
    *,
    pool_limit: str | None = None,
    no_pool: bool = False,
    stopping: bool = False,
) -> str:
    """What would have to be more for the run to be faster, in one line; `pool_limit` is what the pool says of that."""
    left = standing.planned - standing.done
    if rest := _at_rest(left, standing, in_flight, stopping=stopping):
        return rest
    if no_pool:
        return "the pool, which serves nobody"
    waiting, asking = stages.get(Stage.DESKTOP, 0), stages.get(Stage.MODEL, 0)
    if trouble := _server_trouble(endpoints, asking, sum(stages.values()) - waiting):
        return trouble
    if left <= in_flight and left < num_rollouts:
        return "the last episode is under way" if left == 1 else f"the last {left} episodes are under way"
    seen = max(sum(stages.values()), 1)  # by what the workers said last
    # While some wait for a desktop, more episodes would wait, too, whatever those do that have one.
    if pool_limit is not None and (waiting * 5 >= seen or waiting > asking):
        # A pool goes by the last minute, and may not have noticed yet.
        why = "" if pool_limit == NOTHING_LIMITS else f"; {pool_limit.removeprefix('desktops: ')}"
        return f"desktops: {waiting} of {seen} episodes wait for one{why}"
    if asking * 2 > seen:
        return f"the model: {asking} of {seen} episodes wait for it; more num_rollouts would use it more"
    return f"num_rollouts ({num_rollouts})" if in_flight >= num_rollouts else "episodes are being started"
