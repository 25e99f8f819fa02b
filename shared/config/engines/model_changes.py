"""Models come and go with the configuration's file while processes run; what a name stands for does not change.

A name is one model for as long as a process that served it lives: its tokenizer is at the gateway, its weights are at
the nodes, its KV is in caches, and whatever is in flight goes on with what it began with. So a name whose model has
changed is not taken over by running processes; another name is, at once. A name whose weights have changed is served by
none that knew it before: a node that begins now has the new ones, and tokens of one tokenizer mean nothing to the
weights of another. The same holds for each adapter under its own name: those of a model come and go, and what one of
them stands for stays, also where it is away in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, fields
from hashlib import blake2b

from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.config.engines.model_source import is_fetched

ALL_FIELDS = frozenset(field.name for field in fields(ModelSpec)) - {"aliases", "adapters"}
"""All that makes a model what it is to clients; they may call it by other names, and its adapters by theirs."""
WEIGHT_FIELDS = frozenset({"source", "sha256", "weights", "load_format", "task"})
"""Those by which a node computes something else."""

MARK_BYTES = 8
"""Of a digest that has to tell two versions of one name apart; twice as many characters."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Why names cannot be what the file now says."""

    models: Mapping[str, str] = field(default_factory=dict)
    """By name."""
    adapters: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """By the names of model and adapter."""

    @property
    def problems(self) -> list[str]:
        """All of it."""
        return [*self.models.values(), *self.adapters.values()]


NO_CHANGES = Changes()


class KnownModels:
    """What names have stood for since a process began; what is learnt of a name first holds to the end."""

    def __init__(self, specs: Iterable[ModelSpec] = ()) -> None:
        self._models: dict[str, ModelSpec] = {}
        self._adapters: dict[str, dict[str, AdapterSpec]] = {}
        for spec in specs:
            self.learn(spec)

    def learn(self, spec: ModelSpec) -> None:
        """This model is served from now on, and these adapters of it."""
        self._models.setdefault(spec.name, spec)
        known = self._adapters.setdefault(spec.name, {})
        for adapter in spec.adapters:
            known.setdefault(adapter.name, adapter)

    def forget(self, changes: Changes) -> None:
        """What these names stood for was read of a file that may have been half written: they may be learnt anew."""
        for name in changes.models:
            del self._models[name]
        for model, adapter in changes.adapters:
            del self._adapters[model][adapter]

    def model(self, name: str) -> ModelSpec | None:
        """A model, with the adapters that it had first; None for one that is not known."""
        return self._models.get(name)

    def adapter(self, model: str, name: str) -> AdapterSpec | None:
        """An adapter of a model; likewise."""
        return self._adapters.get(model, {}).get(name)

    @property
    def models(self) -> Mapping[str, ModelSpec]:
        """All, by name, each with the adapters that it had first."""
        return self._models

    def changed(self, told: Iterable[ModelSpec], among: Set[str] = ALL_FIELDS) -> Changes:
        """Which names stand for something else in ``told`` than they did, by these fields of a model."""
        models: dict[str, str] = {}
        adapters: dict[tuple[str, str], str] = {}
        for spec in told:
            known = self._models.get(spec.name)
            if known is not None and (names := _differences(known, spec, among)):
                models[spec.name] = f"model {spec.name!r}: {_changed(names)}"
            for one in spec.adapters:
                first = self.adapter(spec.name, one.name)
                if first is not None and (names := _differences(first, one)):
                    adapters[spec.name, one.name] = f"adapter {one.name!r} of model {spec.name!r}: {_changed(names)}"
        return Changes(models, adapters)


def _differences(
    known: ModelSpec | AdapterSpec, told: ModelSpec | AdapterSpec, among: Set[str] | None = None
) -> list[str]:
    """Fields in which two specifications of one name differ."""
    names = [field.name for field in fields(known) if among is None or field.name in among]
    return [name for name in names if getattr(known, name) != getattr(told, name)]


def _changed(names: list[str]) -> str:
    return f"its {', '.join(names)} changed; restart nodes and gateways, or give it another name"


def weights_mark(spec: ModelSpec, adapter: AdapterSpec | None = None) -> str:
    """Short text that tells what is meant by a name, and by one of its adapters, to processes of other files.

    Of a local source only the last part of its path: machines may keep models in other places. The parts and their
    order are what processes of all versions say.
    """
    parts = [_place(spec.source), spec.sha256, spec.weights, spec.load_format, spec.task]
    if adapter is not None:
        parts += [_place(adapter.source), adapter.sha256]
    text = "\0".join(part or "" for part in parts)
    return blake2b(text.encode(), digest_size=MARK_BYTES).hexdigest()


def _place(source: str) -> str:
    return source if is_fetched(source) else source.rstrip("/").rpartition("/")[2]
