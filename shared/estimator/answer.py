"""How long an answer is taken to be where its end was promised: lengths differ, and a promise is for each of them.

By the mean length, about half of all promises would be planned to be broken: whatever an order leaves of the time that
was promised is less than every longer answer takes. So the longest of a few alike is planned for.
"""

from __future__ import annotations

from shared.estimator.batching import Batching, longest_tokens

NUM_ALIKE = 3  # at μ + 1.5 σ: of ShareGPT's answers (NanoFlow, OSDI'25), more than nine in ten are shorter


def long_answer_tokens(work: Batching, limit: float = 0.0) -> float:
    """Output tokens of the longest of `NUM_ALIKE` answers; at most ``limit``, where that is not 0."""
    return longest_tokens(work.output_tokens, work.std_output_tokens, NUM_ALIKE, limit)


def long_answer_s(work: Batching, limit: float = 0.0) -> float:
    """Seconds from a place in a full batch to the end of such an answer (QLM, SoCC'24 §5: P + D)."""
    return work.first_token_at(work.batch) + (long_answer_tokens(work, limit) - 1) * work.token_at(work.batch)
