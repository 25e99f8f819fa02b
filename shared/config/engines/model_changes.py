"""Models come and go with the configuration's file while processes run; what a name stands for does not change.

A name is one model for as long as anybody who served it lives: its tokenizer is at the gateway, its weights are at the
nodes, its KV is in caches, and whatever is in flight goes on with what it began with. So a name whose model has changed
is not taken over by who runs; another name is, at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace

from shared.config.engines.engine import ModelSpec


def differences(known: ModelSpec, told: ModelSpec) -> list[str]:
    """Fields in which two specifications of one name differ; aliases, which nodes do not know, left out."""
    without = replace(told, aliases=known.aliases)
    return [field.name for field in fields(known) if getattr(known, field.name) != getattr(without, field.name)]


def changed_models(known: Mapping[str, ModelSpec], told: Iterable[ModelSpec]) -> dict[str, str]:
    """By name, why a model that is known cannot be what the file now says under that name."""
    found = {spec.name: differences(known[spec.name], spec) for spec in told if spec.name in known}
    return {
        name: f"model {name!r}: its {', '.join(changed)} changed; restart nodes and gateways, or give it another name"
        for name, changed in found.items()
        if changed
    }
