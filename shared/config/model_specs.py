"""What names of models stand for, to an engine that is told more of them while it runs."""

from __future__ import annotations

from collections.abc import Iterable

from shared.config.engines.engine import ModelSpec


class ModelSpecs:
    """An engine's: those that it began with, and what its agent has told since, which reads the file again."""

    def __init__(self, models: Iterable[ModelSpec]) -> None:
        self._known = {spec.name: spec for spec in models}

    def told(self, name: str, spec: ModelSpec | None = None) -> ModelSpec:
        """The model called ``name``, which is ``spec`` from now on; None: as it was known. KeyError where it was not.

        The agent sees to it that a name that was loaded stays what it was.
        """
        if spec is not None:
            self._known[name] = spec
        return self._known[name]
