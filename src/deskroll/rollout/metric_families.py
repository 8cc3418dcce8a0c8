"""Families of metrics in Prometheus' sense: one name, one label, a value for each of its values."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily


def gauge(name: str, about: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    """What goes up and down."""
    family = GaugeMetricFamily(name, about, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def counter(name: str, about: str, label: str, values: Mapping[str, float]) -> CounterMetricFamily:
    """What only goes up, until the run is started again."""
    family = CounterMetricFamily(name, about, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
