"""Pipelines of any cuts, lanes, shares and starts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

from shared.config.pipelines.pipeline_file import FORMAT, PipelineFile, PipelineOperator

ONE_DEVICE = ("AttnNorm", "KQV", "DecAttn", "PfAttn", "O", "FfnNorm", "UGD")
GROUP = ("KQV", "DecAttn", "PfAttn", "Attn.AG", "O", "O.AG", "O.AR", "UGD", "UGD.AR")
PROFILED = ("KQV", "DecAttn", "PfAttn", "O", "UGD")
"""Of a profile, whose products hold the norms before them."""
COLLECTIVES = frozenset({"Attn.AG", "O.AG", "O.AR", "UGD.AR"})
"""In the lane of the network."""
GATHERED = {"Attn.AG": True, "O.AG": True, "O.AR": False}
"""Collectives of rows that are gathered around O, and of those that are summed behind it."""


def pipeline_of(
    operators: Sequence[PipelineOperator], rows: int, num_devices: int = 1, device: str = "any"
) -> PipelineFile:
    """A pipeline with these parts; a layer takes a second."""
    return PipelineFile(
        format=FORMAT,
        model="tiny",
        device=device,
        num_devices=num_devices,
        rows=rows,
        profile="none",
        gap=0.0,
        layer_s=1.0,
        sequential_s=1.0,
        operators=tuple(operators),
    )


def random_pipeline(
    seed: int, rows: int = 64, num_devices: int = 1, device: str = "any", names: Sequence[str] = ONE_DEVICE
) -> PipelineFile:
    """Each operator has cuts, a lane and starts of its own. Nothing is said of what depends on what."""
    numbers = random.Random(seed)
    operators = []
    num_gathered = numbers.choice([0, rows, numbers.randrange(1, rows)]) if num_devices > 1 else 0
    for name in names if num_devices == 1 else GROUP:
        first, end = 0, rows
        if name in GATHERED:
            first, end = (0, num_gathered) if GATHERED[name] else (num_gathered, rows)
        if first == end:
            continue
        cuts = sorted({first, end, *(numbers.randrange(first, end) for _ in range(numbers.randrange(4)))})
        lane = "network" if name in COLLECTIVES else numbers.choice(["compute", "memory", "network", "copy"])
        for first, end in pairwise(cuts):
            start_s = numbers.random() * numbers.choice([1, 3])
            part = numbers.choice([0.1, 0.25, 0.5, 0.75, 1.0])
            operators.append(PipelineOperator(name, (first, end), lane, part, start_s, start_s + 0.1))
    return pipeline_of(operators, rows, num_devices, device)
