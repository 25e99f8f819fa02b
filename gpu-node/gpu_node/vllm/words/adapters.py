"""Adapters of a running vLLM: which it could have, and which room it was started with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shared.config.engines.adapters import MAX_ADAPTERS, AdapterRoom
from shared.config.engines.engine import ModelSpec

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Most that adapters' ranks may be, of which vLLM takes one; the last is `shared.config.engines.adapters.MAX_RANK`."""
MAX_HELD = 2 * MAX_ADAPTERS
"""Of a model in host memory: all that are configured, and as many that have gone and still have requests."""


@dataclass(frozen=True, slots=True)
class CoreAdapter:
    """One adapter of a model, whose files are there and fit it."""

    name: str
    path: Path
    """Absolute: vLLM asks the network for what it does not find."""
    rank: int
    """The largest of its modules'."""
    layout: str
    """As one of `LoadedModel.adapter_layouts`."""


@dataclass(frozen=True, slots=True)
class ReadAdapters:
    """What a model's adapters were found to be."""

    found: tuple[CoreAdapter, ...] = ()
    """In the order of the configuration."""
    problems: dict[str, str] = field(default_factory=dict)
    """By name, why the others cannot be used."""

    @property
    def ranks(self) -> list[int]:
        """Of those that can."""
        return [one.rank for one in self.found]


def room_for(spec: ModelSpec, ranks: Sequence[int]) -> AdapterRoom | None:
    """What a vLLM with this model and adapters of these ranks is to be started with; None where none is wanted."""
    asked = [spec.adapter_room] if spec.adapter_room is not None else []
    if not asked and not ranks:
        return None
    largest = max([*ranks, *(room.rank for room in asked)])
    rank = next(rank for rank in RANKS if rank >= largest)
    return AdapterRoom(max([len(ranks), *(room.num for room in asked)]), rank)


def want_of_room(room: AdapterRoom | None, adapter: CoreAdapter) -> str:
    """Why a vLLM with this room cannot take the adapter, or ``""``."""
    if room is None:
        had = "without room for adapters"
    elif adapter.rank > room.rank:
        had = f"for ranks up to {room.rank}"
    else:
        return ""
    return (
        f"adapter {adapter.name!r} is of rank {adapter.rank}, and its model was started {had} (models[].adapter_room); "
        "it comes when the model has no requests here"
    )
