"""Rotary embeddings as files say them, and how models that were trained on short texts and continued on longer ones
slow theirs down."""

from __future__ import annotations

import math

from gpu_node.models.config import Rope
from gpu_node.models.fields import Fields


def read_rope(fields: Fields, head_dim: int, default_theta: float) -> Rope:
    """``rope_parameters`` holds everything; files of before 2025 have ``rope_theta`` and maybe ``rope_scaling``.

    Of a file that has both, readers take the one or the other: they have to say the same.
    """
    theta = fields.number("rope_theta", float, default=default_theta)
    check_pairs(fields, head_dim)
    sections = [fields.section(key) for key in ("rope_parameters", "rope_scaling")]
    for stated in (fields, *sections):
        if stated is not None and stated.number("partial_rotary_factor", float, default=1.0) != 1.0:
            raise fields.error("rotary embedding of a part of a head is not supported")
    ropes = [scaled_rope(section, head_dim, theta) for section in sections if section is not None]
    if len(set(ropes)) > 1:
        raise fields.error("rope_parameters and rope_scaling say different things; leave one out")
    return ropes[0] if ropes else Rope(theta)


def check_pairs(fields: Fields, head_dim: int) -> None:
    """`ModelFileError` for a head that cannot be turned."""
    if head_dim % 2:
        raise fields.error(f"a head of {head_dim} numbers has no pairs to turn")


def scaled_rope(scaling: Fields, head_dim: int, theta: float) -> Rope:
    """What a section says of it; ``theta``, where it does not."""
    theta = scaling.number("rope_theta", float, default=theta)
    scaling_type = scaling.text("rope_type", default=scaling.text("type", default="default"))
    return Rope(theta, scaling_factors(scaling, scaling_type, head_dim, theta))


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
