"""Metrics of a decision core: read from its state when they are asked for, so that it knows nothing of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shared.service.core import Core

C = TypeVar("C", bound=Core)

Measure = Callable[[C], Iterable[Metric]]
"""What is to be seen of a core. Runs in the loop that the core decides in, between two messages: it must be quick."""


class CoreCollector(Collector, Generic[C]):
    """The metrics of the core that leads now; none while this instance stands by."""

    def __init__(self, read_core: Callable[[], C | None], measure: Measure[C]) -> None:
        self._read_core = read_core
        self._measure = measure

    def collect(self) -> Iterable[Metric]:
        """One walk over the state."""
        core = self._read_core()
        return [] if core is None else self._measure(core)


def gauge(name: str, description: str, value: float) -> GaugeMetricFamily:
    """A gauge with one sample and no labels."""
    return GaugeMetricFamily(name, description, value=value)


def gauges(
    name: str, description: str, labels: Iterable[str], samples: Iterable[tuple[Iterable[str], float]]
) -> GaugeMetricFamily:
    """A gauge with one sample for each of these values of its labels."""
    family = GaugeMetricFamily(name, description, labels=list(labels))
    for values, value in samples:
        family.add_metric(list(values), value)
    return family
