"""A run's status in Prometheus' format."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from deskroll.rollout.metric_families import counter, gauge
from deskroll.rollout.status import RunStatus
from deskroll.rollout.train_metrics import training_metrics


class _Collector:
    def __init__(self, status: RunStatus) -> None:
        self._status = status

    def collect(self) -> Iterable[Metric]:
        status, standing = self._status, self._status.standing
        yield GaugeMetricFamily("deskroll_episodes_planned", "Episodes to be run.", standing.planned)
        yield GaugeMetricFamily("deskroll_episodes_done", "Episodes with an outcome.", standing.done)
        yield GaugeMetricFamily("deskroll_episodes_scored", "Episodes with a score.", standing.scored)
        yield GaugeMetricFamily("deskroll_episodes_succeeded", "Episodes with full score.", standing.successes)
        yield gauge("deskroll_episodes_unscored", "Outcomes without a score.", "class", standing.unscored)
        yield gauge("deskroll_episodes_in_stage", "Episodes in flight, by stage.", "stage", status.stages)
        yield GaugeMetricFamily("deskroll_rollouts_limit", "The most episodes in flight.", status.num_rollouts)
        yield GaugeMetricFamily("deskroll_attention", "Things that are stuck.", len(status.attention))
        yield counter("deskroll_attempts_retried", "Attempts that were made again.", "class", standing.retried)
        yield counter("deskroll_stage_seconds", "Time by stage, over all attempts.", "stage", standing.seconds)
        yield CounterMetricFamily("deskroll_tokens", "Tokens of prompts and completions.", value=standing.tokens)
        yield CounterMetricFamily(
            "deskroll_cost_usd", "Known cost of the model's answers.", value=standing.cost_usd or 0.0
        )
        for name, about, values in (
            ("in_flight", "Requests that are open.", {each.url: float(each.in_flight) for each in status.endpoints}),
            (
                "oldest_seconds",
                "Age of the oldest open request.",
                {each.url: each.oldest_s for each in status.endpoints},
            ),
            (
                "failures",
                "Requests without a usable answer.",
                {each.url: float(each.failures) for each in status.endpoints},
            ),
            (
                "limit",
                "The most requests that the router opens.",
                {each.url: float(each.limit) for each in status.endpoints if each.limit is not None},
            ),
            (
                "queue",
                "Requests that wait in the server itself.",
                {each.url: float(each.queue) for each in status.endpoints if each.state},
            ),
            (
                "up",
                "Whether the router asks it.",
                {each.url: float(each.state == "up") for each in status.endpoints if each.state},
            ),
        ):
            yield gauge(f"deskroll_endpoint_{name}", about, "url", values)
        if status.pool is not None:
            states = {str(state): float(count) for state, count in status.pool.states.items()}
            yield gauge("deskroll_desktops", "Desktops by state.", "state", states)
            yield GaugeMetricFamily(
                "deskroll_desktops_waiting", "Requests for a desktop that wait.", status.pool.waiting
            )
        memory = {str(each.pid): each.rss_mb for each in status.workers}
        yield gauge("deskroll_worker_memory_mb", "Memory of each worker.", "pid", memory)
        if status.training is not None:
            yield from training_metrics(status.training, status.at)


def exposition(status: RunStatus) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(status))
    return generate_latest(registry)
