"""How models that were trained on short texts and continued on longer ones slow their rotary embeddings down."""

from __future__ import annotations

import math

from gpu_node.models.fields import Fields


def scaling_factors(scaling: Fields, scaling_type: str, head_dim: int, theta: float) -> tuple[float, ...]:
    """One factor for each pair of a head, empty for type ``default``; `ModelFileError` for a type not known here."""
    match scaling_type:
        case "default":
            return ()
        case "linear":
            return (scaling.number("factor", float),) * (head_dim // 2)
        case "llama3":
            low = scaling.number("low_freq_factor", float)
            high = scaling.number("high_freq_factor", float)
            if not low < high:
                raise scaling.error(f"low_freq_factor {low} is not below high_freq_factor {high}")
            factor = scaling.number("factor", float)
            trained = scaling.number("original_max_position_embeddings", int)
            return llama3_factors(head_dim, theta, factor, low, high, trained)
    raise scaling.error(
        f"scaled rotary embeddings of type {scaling_type!r} are not supported; 'default', 'linear' and 'llama3' are"
    )


def llama3_factors(
    head_dim: int, theta: float, factor: float, low: float, high: float, trained_length: int
) -> tuple[float, ...]:
    """Pairs that turn often within ``trained_length`` stay, those that never come round are slowed by ``factor``.

    Between ``high`` and ``low`` turns, the speeds are blended (Llama 3.1 model card, "rope scaling").
    """
    factors = []
    for pair in range(head_dim // 2):
        num_turns = trained_length / (2 * math.pi * theta ** (2 * pair / head_dim))
        kept = min(max((num_turns - low) / (high - low), 0.0), 1.0)
        factors.append(1.0 / (kept + (1.0 - kept) / factor))
    return tuple(factors)
