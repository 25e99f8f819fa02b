"""Models come and go with the configuration's file. What cannot be used of it changes nothing, and is complained about.

A model that is new there is read beside all that is served, and asked for once it is read. One that is there no more is
unknown to new requests; those in flight are answered. One that is to be served otherwise under the same name stays what
it was; where other weights are meant, it takes no new requests, since a node that begins now has those
(`shared.config.engines.model_changes`). So do its adapters come and go, each by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge

from gateway.models.models import ServedModel, named_models, read_models
from gateway.workers.served_models import ServedModels
from shared.config.config import ClusterConfig, config_file, load_config
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.config.engines.model_changes import WEIGHT_FIELDS, Changes, KnownModels
from shared.config.reading.file_watch import FileWatch
from shared.config.reading.files import ConfigError
from shared.files.model_file import ModelFileError, checked_path
from shared.service.background.tasks import Supervised
from shared.service.file_looks import next_look

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
        self._known = KnownModels(specs)
        """Every model and adapter that was ever served here: each name stays what it is."""
        self._models = {spec.name: served[spec.name] for spec in specs}
        self._is_sure = False
        """Of what was known at the start: the file may have been half written then."""

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
        if not self._is_sure:
            self._correct(told)
        problems = self._known.changed(told).problems
        new = await self._read_new([spec for spec in told if spec.name not in self._models], problems)
        checked = await self._check_adapters([spec for spec in told if spec.name in self._models | new], problems)
        if not await asyncio.to_thread(self._file.is_still):
            return  # it has changed meanwhile: it is unknown what was read
        self._is_sure = True
        if not problems:
            self._file.settle()
        self._adopt(told, new, checked)
        self._judge(problems)

    def _correct(self, told: Sequence[ModelSpec]) -> None:
        """What was read at the start is not held to, where the file says something else now that it stands still.

        Prompts that were made for what it was say so, and are refused by nodes (`weights_mark`).
        """
        wrong = self._known.changed(told)
        self._known.forget(wrong)
        for name in wrong.models:
            self._models.pop(name, None)

    async def _read_new(self, specs: Sequence[ModelSpec], problems: list[str]) -> dict[str, ServedModel]:
        """One after another, so that each that can be used is. A model that is, is served without adapters that are
        not."""
        found: dict[str, ServedModel] = {}
        for spec in specs:
            known = self._known.model(spec.name) or spec
            try:
                found |= await asyncio.to_thread(self._read, [replace(known, adapters=())])
            except ModelFileError as error:
                problems.append(str(error))
            except Exception as error:  # files that were not foreseen: they must not end what is served
                _log.exception("model_not_read", model=spec.name)
                problems.append(f"model {spec.name!r} cannot be read: {type(error).__name__}: {error}")
        return found

    async def _check_adapters(
        self, specs: Sequence[ModelSpec], problems: list[str]
    ) -> dict[str, tuple[AdapterSpec, ...]]:
        """By model, those of its adapters that can be used: they are served already, or their files are whole."""
        found: dict[str, tuple[AdapterSpec, ...]] = {}
        for spec in specs:
            usable = []
            for told in spec.adapters:
                known = self._known.adapter(spec.name, told.name)
                one = known or told
                try:
                    if known is None or not self._serves(spec.name, one.name):
                        await asyncio.to_thread(checked_path, one)
                    usable.append(one)
                except ModelFileError as error:
                    problems.append(str(error))
            found[spec.name] = tuple(usable)
        return found

    def _serves(self, model: str, adapter: str) -> bool:
        served = self._served.get(adapter)
        return served is not None and (served.model, served.adapter) == (model, adapter)

    def _adopt(
        self,
        told: Sequence[ModelSpec],
        new: dict[str, ServedModel],
        adapters: dict[str, tuple[AdapterSpec, ...]],
    ) -> None:
        known = self._models | new
        self._models = {spec.name: known[spec.name] for spec in told if spec.name in known}
        others = self._known.changed(told, WEIGHT_FIELDS)
        served: dict[str, ServedModel] = {}
        withheld: dict[str, str] = {}
        for spec in told:
            if spec.name not in self._models:
                continue
            usable = replace(spec, adapters=adapters[spec.name])
            if spec.name not in others.models:
                self._known.learn(usable)
            named = named_models([usable], self._models)
            reasons = {name: _reason(others, spec.name, model.adapter) for name, model in named.items()}
            withheld |= {name: reason for name, reason in reasons.items() if reason}
            served |= {name: model for name, model in named.items() if not reasons[name]}
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


def _reason(changes: Changes, model: str, adapter: str) -> str:
    """Why a model, or one of its adapters, takes no new requests; ``""``: it does."""
    return changes.models.get(model) or changes.adapters.get((model, adapter), "")
