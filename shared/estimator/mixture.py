"""Groups of one model that run together: what one request of all of them is like.

A batch is filled by one group behind the other, so groups that are small beside it run together: how many requests fit,
and how many prompts the rows of a step can feed, follows from the mixture of them and not from each alone. Moments of a
mixture are means of moments.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from shared.messages.placement import GroupLoad


def mixture(loads: Iterable[GroupLoad]) -> dict[str, GroupLoad]:
    """By model, a load whose typical request is that of all of them, each as often as it is there."""
    by_model: dict[str, list[GroupLoad]] = {}
    for load in loads:
        by_model.setdefault(load.model, []).append(load)
    return {model: mixed(model, [(load, load.num_requests) for load in parts]) for model, parts in by_model.items()}


def mixed(model: str, parts: Sequence[tuple[GroupLoad, int]]) -> GroupLoad:
    """The same of loads of one model, with how often each is there."""
    number = sum([num for _, num in parts]) or 1
    prompt = sum([num * load.mean_prompt_tokens for load, num in parts]) / number
    output = sum([num * load.mean_output_tokens for load, num in parts]) / number
    square_prompt = sum([num * (load.mean_prompt_tokens**2 + load.std_prompt_tokens**2) for load, num in parts])
    square_output = sum([num * (load.mean_output_tokens**2 + load.std_output_tokens**2) for load, num in parts])
    kept = sum([load.kv_tokens for load, _ in parts if load.kv_at])
    return GroupLoad(
        group="",
        model=model,
        deadline_s=0.0,
        num_waiting=number,
        mean_prompt_tokens=prompt,
        std_prompt_tokens=math.sqrt(max(0.0, square_prompt / number - prompt**2)),
        mean_output_tokens=output,
        std_output_tokens=math.sqrt(max(0.0, square_output / number - output**2)),
        kv_tokens=kept,
        kv_at=next((load.kv_at for load, _ in parts if load.kv_at), ""),
    )
