"""Variants of predictions: each correction left out alone, and all but it; and which of them a run can tell apart."""

from __future__ import annotations

from collections.abc import Sequence

from ablation_runs import Run

from shared.config.services.corrections import Correction

EVERYTHING = frozenset(Correction)
DECIDE = frozenset({Correction.PROMPTS, Correction.CALIBRATION})
"""What nodes, queues and plans hang on; all others are only told."""
DECIDE_BETWEEN_MODELS = DECIDE | {Correction.INTERRUPTIONS, Correction.CHANGE_POINTS, Correction.LIFETIMES}
TOLD_BY_CLASSES = frozenset(
    {Correction.NEWCOMERS, Correction.CHANGE_POINTS, Correction.LIFETIMES, Correction.PLANNED_ORDER}
)
"""Of no use where nobody is more urgent than another."""
TOLD_BY_MODELS = frozenset({Correction.INTERRUPTIONS, Correction.SERVED_ELSEWHERE})
"""Nor these where there is one model."""


def variants() -> dict[str, frozenset[Correction]]:
    """By name, the corrections that are left out."""
    return {
        "all": frozenset(),
        **{f"without {one}": frozenset({one}) for one in Correction},
        "none": EVERYTHING,
        **{f"only {one}": EVERYTHING - {one} for one in Correction},
    }


def deciding_alike(run: Run, chosen: Sequence[str]) -> dict[frozenset[Correction], list[str]]:
    """By what the simulation is to be without, the variants that it judges."""
    deciding = DECIDE_BETWEEN_MODELS if run.num_models > 1 else DECIDE
    alike: dict[frozenset[Correction], list[str]] = {}
    for name in chosen:
        alike.setdefault(variants()[name] & deciding, []).append(name)
    return alike


def matters(run: Run, without: frozenset[Correction]) -> frozenset[Correction]:
    """Of these, the ones that make a difference in such a run: variants that are alike are predicted once."""
    idle: frozenset[Correction] = frozenset()
    if run.num_models == 1:
        idle |= TOLD_BY_MODELS
    if run.num_models == run.num_classes == 1:
        idle |= TOLD_BY_CLASSES
    return without - idle
