"""What a collector shows, as a mapping: the name of a sample and the values of its labels, to its value."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric

Samples = dict[tuple[str, ...], float]


def samples_of(metrics: Iterable[Metric]) -> Samples:
    """Every sample, once."""
    found: Samples = {}
    for metric in metrics:
        for sample in metric.samples:
            key = (sample.name, *sample.labels.values())
            assert key not in found, f"{key} is there twice"
            found[key] = sample.value
    return found
