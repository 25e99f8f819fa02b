"""Models come and go with the configuration's file. What cannot be used of it changes nothing, and is complained about.

A model that is new there is read beside all that is served, and asked for once it is read. One that is there no more is
unknown to new requests; those in flight are answered. One that is to be served otherwise under the same name stays what
it was; where other weights are meant, it takes no new requests, since a node that begins now has those
(`shared.config.engines.model_changes`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from gateway.models.models import ServedModel, named_models, read_models
from gateway.workers.served_models import ServedModels
from shared.config.config import ClusterConfig, config_file, load_config
from shared.config.engines.engine import ModelSpec
from shared.config.engines.model_changes import changed_models, changed_weights
from shared.config.reading.file_watch import FileWatch
from shared.config.reading.files import ConfigError
from shared.files.model_file import ModelFileError
from shared.service.file_looks import next_look
from shared.service.tasks import Supervised

ReadModels = Callable[[Sequence[ModelSpec]], dict[str, ServedModel]]
"""Reads the files of models; `ModelFileError` says why they cannot be used."""

_log = structlog.get_logger(__name__)


class ModelMetrics:
    """What is seen of the models' coming and going."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.reloads = Counter(
            "treadle_model_reloads",
            "Times that other models of the configuration were taken over, or could not be",
            ["outcome"],
            registry=registry,
        )
        self.stale = Gauge(
            "treadle_models_stale",
            "1 while the configuration's file says something of its models that does not hold",
            registry=registry,
        )


class ServedModelWatch:
    """Keeps `ServedModels` as the file has them."""

    def __init__(
        self,
        file: FileWatch,
        configured: Callable[[], ClusterConfig],
        specs: Sequence[ModelSpec],
        served: ServedModels,
        read: ReadModels,
        metrics: ModelMetrics,
    ) -> None:
        """``specs``: those of what is ``served`` now. ``configured`` answers what the file says; it may raise
        `ConfigError`."""
        self._file = file
        self._configured = configured
        self._read = read
        self._served = served
        self._metrics = metrics
        self._known = {spec.name: spec for spec in specs}
        """Every model that was ever served here, by name: it stays what it is."""
        self._models = {spec.name: served[spec.name] for spec in specs}

    async def run(self) -> None:
        """Look again and again, for ever."""
        while True:
            await self.look()
            await next_look(self._file, is_retry=bool(self._served.problem))

    async def look(self) -> None:
        """Take over what the file says if it has changed and stood still since."""
        if not await asyncio.to_thread(self._file.must_be_read):
            return
        try:
            told = (await asyncio.to_thread(self._configured)).models
        except ConfigError as error:
            self._judge([str(error)])
            return
        changed = changed_models(self._known, told)
        problems = list(changed.values())
        new = await self._read_new([spec for spec in told if spec.name not in self._models], problems)
        if not await asyncio.to_thread(self._file.is_still):
            return  # it has changed meanwhile: nobody knows what was read
        if not problems:
            self._file.settle()
        self._adopt(told, new, changed)
        self._judge(problems)

    async def _read_new(self, specs: Sequence[ModelSpec], problems: list[str]) -> dict[str, ServedModel]:
        """One after another, so that each that can be used is."""
        found: dict[str, ServedModel] = {}
        for spec in specs:
            try:
                found |= await asyncio.to_thread(self._read, [self._known.get(spec.name, spec)])
            except ModelFileError as error:
                problems.append(str(error))
            except Exception as error:  # files of which nobody has thought: they must not end what is served
                _log.exception("model_not_read", model=spec.name)
                problems.append(f"model {spec.name!r} cannot be read: {type(error).__name__}: {error}")
        return found

    def _adopt(self, told: Sequence[ModelSpec], new: dict[str, ServedModel], changed: dict[str, str]) -> None:
        known = self._models | new
        self._models = {spec.name: known[spec.name] for spec in told if spec.name in known}
        for spec in told:
            if spec.name in new:
                self._known.setdefault(spec.name, spec)
        others = changed_weights(self._known, told)
        served: dict[str, ServedModel] = {}
        withheld: dict[str, str] = {}
        for spec in told:
            if spec.name not in self._models:
                continue
            named = named_models([replace(self._known[spec.name], aliases=spec.aliases)], self._models)
            if spec.name in changed:  # adapters that it has no more may have given their names to others
                taken = _names(other for other in told if other is not spec)
                named = {name: model for name, model in named.items() if name not in taken}
            if spec.name in others:
                withheld |= dict.fromkeys(named, others[spec.name])
            else:
                served |= named
        self._served.withheld = withheld
        if self._served.replace(served):
            self._metrics.reloads.labels("ok").inc()
            _log.info("models_reloaded", file=str(self._file.path), models=list(served))

    def _judge(self, problems: Sequence[str]) -> None:
        problem = "\n".join(problems)
        if problem and problem != self._served.problem:
            self._metrics.reloads.labels("failed").inc()
            _log.error("models_not_reloaded", problem=problem, models=list(self._served))
        self._served.problem = problem
        self._metrics.stale.set(bool(problem))


@asynccontextmanager
async def watching_models(
    config: ClusterConfig, served: ServedModels, registry: CollectorRegistry, on_failure: Callable[[], None]
) -> AsyncIterator[None]:
    """Inside, the models that are ``served`` are those of the configuration's file, where there is one.

    ``on_failure`` has the process leave, as `Supervised.until_left` says.
    """
    path = config_file()
    if path is None:
        yield
        return
    read, metrics = partial(read_models, config), ModelMetrics(registry)
    watch = ServedModelWatch(FileWatch(path), load_config, config.models, served, read, metrics)
    supervised = Supervised()
    async with supervised.until_left(on_failure):
        supervised.start("the watch over the models", watch.run())
        yield


def _names(specs: Iterable[ModelSpec]) -> set[str]:
    """All that clients may say for them."""
    return {name for spec in specs for name in (spec.name, *spec.aliases, *(one.name for one in spec.adapters))}
