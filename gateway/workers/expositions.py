"""Metrics of several processes as those of one: each sample says which worker it is of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

LABEL = "worker"


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def merge(own: CollectorRegistry, of_workers: Mapping[str, str]) -> bytes:
    """What Prometheus reads: ``own`` as it is, and what each worker has answered, with a label more."""
    families: dict[str, Metric] = {}
    for worker, text in of_workers.items():
        for found in text_string_to_metric_families(text):
            _add(families, found, {LABEL: worker})
    for found in own.collect():
        _add(families, found, {})
    # without auto_describe, a registry takes what it is given as it is
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families.values()))
    return generate_latest(registry)


def _add(families: dict[str, Metric], found: Metric, labels: dict[str, str]) -> None:
    family = families.setdefault(found.name, Metric(found.name, found.documentation, found.type, found.unit))
    for sample in found.samples:
        family.samples.append(sample._replace(labels={**sample.labels, **labels}))
