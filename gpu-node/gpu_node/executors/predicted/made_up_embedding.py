"""Embeddings, and logits of models that score, that are made up where no model computes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def made_up_embedding(token_ids: Sequence[int], num_columns: int) -> bytes:
    """float32 [columns], little-endian: standard normal, by the last tokens of a text as they came in one step."""
    numbers = np.random.default_rng(list(token_ids)).standard_normal(num_columns, dtype=np.float32)
    return numbers.astype("<f4").tobytes()
