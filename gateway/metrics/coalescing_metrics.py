"""Tokens that waited for the next ones of their answers, in metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector


class CoalescingCollector(Collector):
    """The count so far, when metrics are read."""

    def __init__(self, num_held: Callable[[], int]) -> None:
        self._num_held = num_held

    def collect(self) -> Iterator[CounterMetricFamily]:
        """One counter."""
        yield CounterMetricFamily(
            "treadle_held_writes",
            "Writes of streamed tokens that waited for the next ones of their answers, since a gateway's core was full",
            value=self._num_held(),
        )
