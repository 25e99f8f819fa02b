"""Models come and go with the configuration's file while processes run; what a name stands for does not change.

A name is one model for as long as anybody who served it lives: its tokenizer is at the gateway, its weights are at the
nodes, its KV is in caches, and whatever is in flight goes on with what it began with. So a name whose model has changed
is not taken over by who runs; another name is, at once. A name whose weights have changed is served by nobody who knew
it before: a node that begins now has the new ones, and tokens of one tokenizer mean nothing to the weights of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import fields, replace
from hashlib import blake2b

from shared.config.engines.engine import ModelSpec
from shared.config.engines.model_source import is_fetched

ALL_FIELDS = frozenset(field.name for field in fields(ModelSpec)) - {"aliases"}
"""All that makes a model what it is to clients; they may call it by other names."""
WEIGHT_FIELDS = frozenset({"source", "sha256", "weights", "load_format", "task", "adapters"})
"""Those by which a node computes something else. Of adapters, each that has its name already: one that comes, or goes,
changes nothing for the others."""

MARK_BYTES = 8
"""Of a digest that has to tell two versions of one name apart; twice as many characters."""


def differences(known: ModelSpec, told: ModelSpec, among: Set[str] = ALL_FIELDS) -> list[str]:
    """Fields in which two specifications of one name differ."""
    names = [field.name for field in fields(known) if field.name in among]
    return [name for name in names if getattr(known, name) != getattr(told, name)]


def changed_models(
    known: Mapping[str, ModelSpec], told: Iterable[ModelSpec], among: Set[str] = ALL_FIELDS
) -> dict[str, str]:
    """By name, why a model that is known cannot be what the file now says under that name."""
    found = {spec.name: differences(known[spec.name], spec, among) for spec in told if spec.name in known}
    return {
        name: f"model {name!r}: its {', '.join(changed)} changed; restart nodes and gateways, or give it another name"
        for name, changed in found.items()
        if changed
    }


def changed_weights(known: Mapping[str, ModelSpec], told: Iterable[ModelSpec]) -> dict[str, str]:
    """The same, of models whose tokens would be others."""
    alike = [_beside(known[spec.name], spec) for spec in told if spec.name in known]
    return changed_models(known, alike, WEIGHT_FIELDS)


def _beside(known: ModelSpec, told: ModelSpec) -> ModelSpec:
    """``told`` with the adapters that are known, each as it is told, if it is."""
    adapters = {adapter.name: adapter for adapter in told.adapters}
    return replace(told, adapters=tuple(adapters.get(one.name, one) for one in known.adapters))


def weights_mark(spec: ModelSpec, adapter: str = "") -> str:
    """Short text that tells what is meant by a name, and by one of its adapters, to processes of other files.

    Of a local source only the last part of its path: machines may keep models in other places. The parts and their
    order are what processes of all versions say.
    """
    meant = next((one for one in spec.adapters if one.name == adapter), None)
    parts = [_place(spec.source), spec.sha256, spec.weights, spec.load_format, spec.task]
    if meant is not None:
        parts += [_place(meant.source), meant.sha256]
    text = "\0".join(part or "" for part in parts)
    return blake2b(text.encode(), digest_size=MARK_BYTES).hexdigest()


def _place(source: str) -> str:
    return source if is_fetched(source) else source.rstrip("/").rpartition("/")[2]
