"""A training loop's status in Prometheus' format: `deskroll_train_*`."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from deskroll.events import LoopWait
from deskroll.rollout.metric_families import counter, gauge
from deskroll.rollout.train_status import TrainStatus


def training_metrics(status: TrainStatus, now: float) -> Iterable[Metric]:
    """Counters are of this start; what no step of it has told yet is left out."""
    yield GaugeMetricFamily("deskroll_train_step", "Steps that were taken.", status.step)
    yield GaugeMetricFamily("deskroll_train_steps", "Steps that are to be taken.", status.steps)
    yield GaugeMetricFamily("deskroll_train_version", "Version of the weights that are served.", status.version)
    waited = {str(each): 0.0 for each in LoopWait} | {str(status.waits_for): max(0.0, now - status.since)}
    yield gauge("deskroll_train_waiting_seconds", "For how long the loop waits for this.", "for", waited)
    yield GaugeMetricFamily("deskroll_train_groups_ready", "Groups that wait for a step.", status.ready)
    yield GaugeMetricFamily("deskroll_train_groups_in_flight", "Groups of training that run.", status.in_flight)
    yield counter("deskroll_train_groups", "Groups by what became of them.", "use", status.groups)
    yield counter("deskroll_train_seconds", "Time of steps by part.", "part", status.seconds)
    yield counter("deskroll_train_failures", "Steps, and refreshes of servers, that failed.", "of", status.failures)
    yield from _last_step(status)
    done = {each.phase: each for each in (status.baseline, status.evaluation) if each is not None}
    means = {phase: each.mean_score for phase, each in done.items() if each.mean_score is not None}
    yield gauge("deskroll_train_eval_score", "Mean score of the last evaluation.", "phase", means)
    steps = {phase: float(each.step) for phase, each in done.items()}
    yield gauge("deskroll_train_eval_step", "The step after which that was.", "phase", steps)


def _last_step(status: TrainStatus) -> Iterable[Metric]:
    if (last := status.last) is None:
        return
    yield GaugeMetricFamily("deskroll_train_reward", "Mean reward of the last step.", last.reward)
    lags = {"p50": last.lag_p50, "p95": last.lag_p95, "max": float(last.lag_max)}
    yield gauge("deskroll_train_lag", "Steps between weights that sampled and the last step.", "of", lags)
    yield gauge("deskroll_train_measure", "What the trainer tells of the last step.", "name", last.measures)
