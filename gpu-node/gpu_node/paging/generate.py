"""Requests without a file: lengths drawn as those of ShareGPT are distributed."""

from __future__ import annotations

from gpu_node.executors.draws.counter import uniform
from gpu_node.executors.predicted.lengths import SHAREGPT_INPUT, SHAREGPT_OUTPUT
from gpu_node.paging.trace import PagingTrace, TraceRequest
from shared.files.length_trace import TraceError

_MAX_DRAWS = 1_000
"""A request; a limit that hardly any draw meets is a mistake, not a workload."""


def generate(num_requests: int, max_tokens: int, seed: int) -> PagingTrace:
    """Independent input and output lengths; what has more than ``max_tokens`` together is drawn again."""
    requests: list[TraceRequest] = []
    num_drawn = 0
    while len(requests) < num_requests:
        if num_drawn >= num_requests * _MAX_DRAWS:
            raise TraceError(f"hardly any generated request has at most {max_tokens} tokens")
        request = TraceRequest(
            SHAREGPT_INPUT.tokens(_inside(uniform(seed, 2 * num_drawn))),
            SHAREGPT_OUTPUT.tokens(_inside(uniform(seed, 2 * num_drawn + 1))),
        )
        num_drawn += 1
        if request.input_tokens + request.output_tokens <= max_tokens:
            requests.append(request)
    return PagingTrace(tuple(requests), num_drawn - num_requests, has_arrivals=False)


def _inside(probability: float) -> float:
    """Without the end at 0, where a normal distribution has no value."""
    return max(probability, 2.0**-54)
