"""Models that left the device and stay in host memory, ready to run: they come back without a file being read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from shared.config.engines.engine import ModelSpec

Prepared = TypeVar("Prepared")

DEVICE, HOST = "device", "host"


class HostTier(Generic[Prepared]):
    """At most ``num_models``; the first that left the device is freed first (model swapping: QLM, SoCC'24, §5).

    For a device that computes in host memory, device and host are the same bytes: a model moves by name only, and what
    is saved is reading, checking, dequantising and packing. While a model is read, one more than these and those of
    the device is in memory: the one that goes for it stays until it is sure to come.
    """

    def __init__(self, num_models: int, free: Callable[[Prepared], None]) -> None:
        self._num_models = num_models
        self._free = free
        self._models: OrderedDict[str, tuple[ModelSpec, Prepared]] = OrderedDict()

    def put(self, spec: ModelSpec, model: Prepared) -> None:
        """A model leaves the device: it, or another, is freed if there are too many."""
        assert spec.name not in self._models
        self._models[spec.name] = spec, model
        while len(self._models) > self._num_models:
            _, (_, oldest) = self._models.popitem(last=False)
            self._free(oldest)

    def take(self, spec: ModelSpec) -> Prepared | None:
        """A model goes back to the device; None if it is not here. One of another configuration is freed."""
        kept, model = self._models.pop(spec.name, (spec, None))
        if kept == spec or model is None:
            return model
        self._free(model)
        return None

    def tiers(self, on_device: Iterable[str]) -> dict[str, str]:
        """Where the weights of every model are: ``device`` for these, ``host`` for those that are kept here."""
        return {**dict.fromkeys(self._models, HOST), **dict.fromkeys(on_device, DEVICE)}

    def clear(self) -> None:
        """Free all."""
        while self._models:
            _, (_, model) = self._models.popitem()
            self._free(model)
