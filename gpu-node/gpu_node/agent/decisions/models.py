"""What a node knows of the models that it has had in this epoch: where they are, and what they can do here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpu_node.agent.decisions.node_adapters import NodeAdapters
from gpu_node.agent.decisions.prefix_hits import PrefixHits
from gpu_node.engine.measures.counts import Counts
from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.process.protocol import ModelFailed, ModelLoaded
from shared.config.engines.engine import ModelSpec
from shared.config.engines.model_changes import WEIGHT_FIELDS, KnownModels
from shared.messages.nodes.step_cost import NOTHING_CACHED, ONE_TOKEN, DecodeYield, ModelRate, StepCost

DEVICE = "device"
HOST = "host"
DISK = "disk"


class NodeModels:
    """Owns what is loaded, what is being loaded, and what has been measured of each model."""

    def __init__(self) -> None:
        self.loaded: ModelLoaded | None = None
        """The current model: the one that was asked for last."""
        self.loading = ""
        """The model that the engine has been told to load, or ``""``."""
        self._known = KnownModels(among=WEIGHT_FIELDS)
        """As the configuration had each name first in this epoch."""
        self.adapters = NodeAdapters(self._known)
        self._failed: dict[str, str] = {}
        self._unknown: dict[str, str] = {}
        self._changed: dict[str, str] = {}
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
        return {**self._failed, **self._unknown, **self._changed}

    def is_unknown(self, model: str) -> bool:
        """Whether it is not in the configuration here yet: its requests wait for that, or for another node."""
        return model in self._unknown

    @property
    def current(self) -> str:
        """Name of the current model, or ``""``."""
        return self.loaded.model if self.loaded else ""

    def is_on_device(self, model: str) -> bool:
        """Whether its weights are there, so that it can become the current one at any time."""
        return self._tiers.get(model) == DEVICE

    @property
    def fetching(self) -> str:
        """The model whose weights are being brought to the device, or ``""``; nobody is served until they are there."""
        return "" if self.is_on_device(self.loading) else self.loading

    def on_loaded(self, event: ModelLoaded) -> None:
        """A model has become the current one."""
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

    def on_configured(self, specs: Sequence[ModelSpec]) -> None:
        """The configuration has these models now. Of those that it has no more nothing changes: they are asked for yet.

        A name that stands for another model than before stands for none here, until it does again or the epoch ends.
        """
        for spec in specs:
            self._known.learn(spec)
            self._unknown.pop(spec.name, None)
        changes = self._known.changed(specs)
        self._changed = dict(changes.models)
        self.adapters.on_configured(specs, changes)

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
