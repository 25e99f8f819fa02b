"""Groups of one model that run together: what one request of all of them is like.

A batch is filled by one group behind the other, so groups that are small beside it run together: how many requests fit,
and how many prompts the rows of a step can feed, follows from the mixture of them and not from each alone. Moments of a
mixture are means of moments.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from shared.messages.nodes.placement import GroupLoad, RequestShape


def mixture(loads: Iterable[GroupLoad]) -> dict[str, RequestShape]:
    """By model, the typical request of all of them, each as often as it is there."""
    by_model: dict[str, list[GroupLoad]] = {}
    for load in loads:
        by_model.setdefault(load.model, []).append(load)
    return {model: mixed(model, [(load, load.num_requests) for load in parts]) for model, parts in by_model.items()}


def mixed(model: str, parts: Sequence[tuple[RequestShape, int]]) -> RequestShape:
    """The same of requests of one model, with how often each is there."""
    number = sum([num for _, num in parts]) or 1
    prompt = sum([num * shape.mean_prompt_tokens for shape, num in parts]) / number
    output = sum([num * shape.mean_output_tokens for shape, num in parts]) / number
    square_prompt = sum([num * (shape.mean_prompt_tokens**2 + shape.std_prompt_tokens**2) for shape, num in parts])
    square_output = sum([num * (shape.mean_output_tokens**2 + shape.std_output_tokens**2) for shape, num in parts])
    return RequestShape(
        model=model,
        mean_prompt_tokens=prompt,
        std_prompt_tokens=deviation(prompt, square_prompt / number),
        mean_output_tokens=output,
        std_output_tokens=deviation(output, square_output / number),
        kept_tokens=sum([num * shape.kept_tokens for shape, num in parts]) / number,
    )


def deviation(mean: float, square: float) -> float:
    """Standard deviation of what has this mean, and whose squares have that: √(E[X²] - E[X]²)."""
    return math.sqrt(max(0.0, square - mean * mean))
