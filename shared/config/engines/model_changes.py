"""Models come and go with the configuration's file while processes run; what a name stands for does not change.

A name is one model for as long as anybody who served it lives: its tokenizer is at the gateway, its weights are at the
nodes, its KV is in caches, and whatever is in flight goes on with what it began with. So a name whose model has changed
is not taken over by who runs; another name is, at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import fields

from shared.config.engines.engine import ModelSpec

ALL_FIELDS = frozenset(field.name for field in fields(ModelSpec)) - {"aliases"}
"""All that makes a model what it is to clients; they may call it by other names."""
WEIGHT_FIELDS = frozenset({"source", "sha256", "weights", "load_format", "task", "adapters"})
"""Those by which a node computes something else."""


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
