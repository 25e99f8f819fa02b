"""What a node knows of the models that it has had in this epoch: where they are, and what they can do here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from gpu_node.agent.decisions.models.node_adapters import FILE_WAIT_S, NodeAdapters
from gpu_node.agent.decisions.models.prefix_hits import PrefixHits
from gpu_node.engine.measures.counts import Counts
from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.process.protocol.protocol import LoadModel, ModelFailed, ModelLoaded
from shared.config.engines.engine import ModelSpec
from shared.config.engines.model_changes import WEIGHT_FIELDS, KnownModels, weights_mark
from shared.messages.nodes.step_cost import NOTHING_CACHED, ONE_TOKEN, DecodeYield, ModelRate, StepCost
from shared.messages.requests.payload import Payload

DEVICE = "device"
HOST = "host"
DISK = "disk"

MAX_LOAD_DEATHS = 3  # in a row; one may have been killed for something else
MAX_GONE = 64  # of the models that are gone, so many are told with each heartbeat, and what was measured of them


@dataclass(slots=True)
class ModelRecord:
    """What a node knows of models for as long as its process lives, over all epochs."""

    held: KnownModels = field(default_factory=KnownModels)
    """What names stand for: models and adapters that were configured when it began, and those that came later and were
    loaded."""
    has_begun: bool = False
    """What was configured when it began is known: the file has stood still since."""
    num_deaths: dict[str, int] = field(default_factory=dict)
    """By model, engines that have died while they loaded it, since it was loaded last."""


class NodeModels:
    """Owns what is loaded, what is being loaded, and what has been measured of each model."""

    def __init__(self, record: ModelRecord | None = None) -> None:
        """``record`` outlives the epoch."""
        self.loaded: ModelLoaded | None = None
        """The current model: the one that was asked for last."""
        self.loading = ""
        """The model that the engine has been told to load, or ``""``."""
        self._record = record or ModelRecord()
        self._held = self._record.held
        self._told: dict[str, ModelSpec] = {}
        """By name, as the configuration has them now; empty where none was told."""
        self._loading = LoadModel("")
        """What the engine was told last."""
        self.adapters = NodeAdapters(self._held)
        self._failed: dict[str, str] = {}
        self._unknown: dict[str, str] = {}
        self._changed: dict[str, str] = {}
        self._awaited_since_s: dict[str, float] = {}
        """By model that requests here wait for, though the configuration does not have it so."""
        self._late: set[str] = set()
        """Of these, models whose requests wait no more."""
        self._gone: dict[str, None] = {}
        """Models that can be loaded here and are in the configuration no more, as they went."""
        self.swap_s = 0.0
        """Duration of the last load."""
        self._seen: dict[str, ModelLoaded] = {}
        self._costs: dict[str, StepCost] = {}
        self._decodes: dict[str, DecodeYield] = {}
        self._tiers: dict[str, str] = {}
        self._counts = Counts()
        self._num_remote_blocks: dict[str, int] = {}
        self._hits: dict[str, PrefixHits] = {}
        self._load_s: dict[str, dict[str, float]] = {}
        """By model, the last load from each tier of memory."""

    @property
    def broken(self) -> dict[str, str]:
        """Models that cannot be loaded here, and why."""
        return {**self._failed, **self._unknown, **self._changed, **self._deadly}

    @property
    def _deadly(self) -> dict[str, str]:
        """Models that took one engine after another, and with it all others that are served here.

        Where there is no other, it is tried again, later and later: memory may be free by then.
        """
        found = {model: num for model, num in self._record.num_deaths.items() if num >= MAX_LOAD_DEATHS}
        if self._told.keys() <= found.keys():
            return {}
        return {
            model: f"model {model!r} is not tried again here: {num} engines in a row died while they loaded it"
            for model, num in found.items()
        }

    def engine_died(self) -> None:
        """Whatever it was doing."""
        if self.loading:
            self._record.num_deaths[self.loading] = self._record.num_deaths.get(self.loading, 0) + 1

    def is_awaited(self, model: str) -> bool:
        """Whether the configuration here does not have it yet, or as something else than it was.

        Gateways read the same file, a second sooner or later, and send nothing for what it does not have: so requests
        for it wait until it is read here, too, or for another node. Those that were queued before it changed would
        wait for ever: in `FILE_WAIT_S` they hear why.
        """
        return model not in self._late and (model in self._unknown or model in self._changed)

    def due(self, now: float, asked: Iterable[str]) -> None:
        """Time has passed; ``asked``: models that requests in this node's queue are for."""
        awaited = set(asked) & (self._unknown.keys() | self._changed.keys())
        self._awaited_since_s = {model: self._awaited_since_s.get(model, now) for model in awaited}
        self._late = {model for model, since_s in self._awaited_since_s.items() if now - since_s >= FILE_WAIT_S}
        self.adapters.due(now)

    @property
    def gone(self) -> list[str]:
        """Models that can be loaded here and are in the configuration no more, so that no gateway offers them: those
        that went last."""
        return sorted(list(self._gone)[-MAX_GONE:])

    @property
    def current(self) -> str:
        """Name of the current model, or ``""``."""
        return self.loaded.model if self.loaded else ""

    def is_on_device(self, model: str) -> bool:
        """Whether its weights are there, so that it can become the current one at any time."""
        return self._tiers.get(model) == DEVICE

    @property
    def fetching(self) -> str:
        """The model whose weights are on their way to the device, or ``""``; no request is served meanwhile."""
        return "" if self.is_on_device(self.loading) else self.loading

    def begin_load(self, model: str, in_use: Iterable[str]) -> LoadModel:
        """What the engine is to be told, so that it loads it; ``in_use``: adapters that requests here are for."""
        self.loading = model
        spec = self._spec(model)
        self._loading = LoadModel(model, spec and replace(spec, adapters=self.adapters.wanted(model, in_use)))
        return self._loading

    def is_configured(self, model: str) -> bool:
        """Whether it is known what the name stands for: where no configuration was told, the engine may."""
        return not self._told or self._spec(model) is not None

    def _spec(self, model: str) -> ModelSpec | None:
        return self._held.model(model) or self._told.get(model)

    def mismatch(self, payload: Payload) -> str:
        """Why its tokens mean nothing here: its gateway knows another model by that name; ``""`` where it does not.

        An adapter that is not known here is waited for.
        """
        spec = self._spec(payload.model)
        adapter = self.adapters.spec(payload.model, payload.adapter)
        if not payload.weights or spec is None or (payload.adapter and adapter is None):
            return ""
        if payload.weights == weights_mark(spec, adapter):
            return ""
        return f"model {payload.model!r} stands for other weights at this node than at the gateway; restart both"

    def on_loaded(self, event: ModelLoaded) -> None:
        """A model has become the current one."""
        if event.model == self._loading.model and self._loading.spec is not None:
            self._held.learn(_with(self._loading.spec, event.adapters))
            self._compare()  # the configuration may say something else by now
        self._record.num_deaths.pop(event.model, None)
        self.loaded, self.loading = event, ""
        self._seen[event.model] = event
        self._tiers = event.tiers | {event.model: DEVICE}
        self.adapters.on_loaded(event)
        if event.load_s > 0:
            self.swap_s = event.load_s
            self._load_s.setdefault(event.model, {})[event.source] = event.load_s

    def on_failed(self, event: ModelFailed, in_use: Iterable[str] = ()) -> None:
        """A model cannot be loaded; what was loaded before still is.

        One that is there is served on: it could not have other adapters, beside those that requests here are for.
        """
        if self.is_on_device(event.model):
            self.adapters.on_failed(event.model, in_use, event.error)
        else:
            (self._unknown if event.is_unknown else self._failed)[event.model] = event.error
        self.loading = ""

    def on_configured(self, specs: Sequence[ModelSpec], *, is_settled: bool = True) -> None:
        """The configuration has these models now. Of those that it has no more nothing changes: they are asked for yet.

        A name that stands for another model than before stands for none here, until it does again or the node is
        restarted. One that came later and was never loaded may be corrected, and is tried again; so may all that was
        read before the file was ``is_settled``.
        """
        if self._told:  # others than an epoch begins with
            self._record.num_deaths.clear()
        self._told = {spec.name: spec for spec in specs}
        if is_settled and not self._record.has_begun:
            self._record.has_begun = True
            for spec in specs:
                self._held.learn(spec)
        for spec in specs:
            self._unknown.pop(spec.name, None)
            if self._held.model(spec.name) is None:
                self._failed.pop(spec.name, None)
        self._compare()
        self.adapters.try_again()

    def _compare(self) -> None:
        """What the configuration has now with what names stand for."""
        specs = list(self._told.values())
        changes = self._held.changed(specs, WEIGHT_FIELDS)
        self._changed = dict(changes.models)
        self.adapters.on_configured(specs, changes)
        self._forget_gone()

    def _forget_gone(self) -> None:
        """What was measured of models that went long ago: heartbeats would grow with each that comes and goes."""
        gone = self._held.models.keys() - self._told.keys() if self._told else frozenset()
        self._gone = dict.fromkeys([*(model for model in self._gone if model in gone), *sorted(gone)])
        for model in list(self._gone)[:-MAX_GONE]:
            if model != self.current:
                for measured in (self._costs, self._decodes, self._hits, self._load_s):
                    measured.pop(model, None)

    def learn(self, stats: EngineStats) -> None:
        """What the engine has learnt of the current model's steps, and found of its prompts in a cache."""
        if stats.cost is not None and self.loaded is not None:
            self._costs[self.loaded.model] = stats.cost
        if stats.decode is not None and self.loaded is not None:
            self._decodes[self.loaded.model] = stats.decode
        if self.loaded is not None:
            self._num_remote_blocks[self.loaded.model] = stats.num_remote_blocks
        if stats.counts == self._counts:
            return
        new, self._counts = stats.counts - self._counts, stats.counts
        if new.first_queried_tokens and self.loaded is not None:
            hits = self._hits.setdefault(self.loaded.model, PrefixHits())
            hits.add(new.first_queried_tokens, new.first_cached_tokens)

    def rates(self) -> list[ModelRate]:
        """What is known of every model whose steps have been measured.

        What is borrowed counts as room, as long as it is, and so much of all context has the price that it has there.
        """
        return [
            ModelRate(
                model=name,
                cost=self._cost_here(name, cost),
                kv_tokens=(self._seen[name].num_blocks + self._num_borrowed(name)) * self._seen[name].block_size,
                kv_token_bytes=self._seen[name].block_bytes // self._seen[name].block_size,
                load_s=self._expected_load_s(name),
                cached_share=self._hits[name].share if name in self._hits else NOTHING_CACHED,
                kv_format=self._seen[name].kv_format,
                decode=self._decodes.get(name, ONE_TOKEN),
                step_tokens=self._seen[name].step_tokens,
            )
            for name, cost in sorted(self._costs.items())
        ]

    def _cost_here(self, model: str, cost: StepCost) -> StepCost:
        num_borrowed = self._num_borrowed(model)
        return cost.with_remote_share(num_borrowed / (self._seen[model].num_blocks + num_borrowed))

    def _num_borrowed(self, model: str) -> int:
        return self._num_remote_blocks.get(model, 0) if model == self.current else 0

    def _expected_load_s(self, model: str) -> float:
        """From where its weights are now, as it was measured last; an upper bound where that has not happened yet.

        Whatever was measured came from there or from farther away: a model starts on disk.
        """
        tier = self._tiers.get(model, DISK)
        if tier == DEVICE:
            if not self.fetching or model != self.current:
                return 0.0
            tier = HOST  # it makes room now
        measured = self._load_s.get(model, {})
        return measured.get(tier, max(measured.values(), default=0.0))


def _with(spec: ModelSpec, adapters: Iterable[str]) -> ModelSpec:
    """A model with those alone of its adapters."""
    names = set(adapters)
    return replace(spec, adapters=tuple(one for one in spec.adapters if one.name in names))
