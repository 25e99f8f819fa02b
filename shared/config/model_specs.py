"""The models that an engine can be asked for, while their file changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from shared.config.config import ClusterConfig, load_config
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec


class ModelSpecs:
    """An engine's: those that it began with, and what has come to the configuration's file since."""

    def __init__(self, config: ClusterConfig, read: Callable[[], ClusterConfig] = load_config) -> None:
        """``read`` answers what the file says now; `ConfigError` says why it cannot be used."""
        self._known = {spec.name: spec for spec in config.models}
        self._read = read

    def spec(self, name: str, adapters: Sequence[AdapterSpec] | None = None) -> ModelSpec:
        """The model called ``name``: what it is known as, or else what the file says of it now; with these adapters.

        KeyError where it says nothing of it; `ConfigError` where it cannot be read.
        """
        if name not in self._known:
            told = {spec.name: spec for spec in self._read().models}
            self._known[name] = told[name]
        found = self._known[name]
        return found if adapters is None else replace(found, adapters=tuple(adapters))
