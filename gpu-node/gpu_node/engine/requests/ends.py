"""When a sequence is at its end."""

from __future__ import annotations

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.requests.sequence import Sequence
from shared.messages.requests.payload import Sampling


def finish_reason(sequence: Sequence, sampling: Sampling, model: LoadedModel) -> str:
    """``stop``, ``length`` or ``""``, judged by the sequence's output so far. A stopping token stays in the output.

    An output that is whole in its language is at its end, even where `Sampling.ignore_eos` asks for more.
    """
    if sequence.matcher is not None and sequence.matcher.is_over:
        return "stop"
    if sequence.num_output_tokens > 0 and stops(sequence.token_ids[-1], sampling, model):
        return "stop"
    return "length" if len(sequence.token_ids) >= sequence.max_len else ""


def stops(token_id: int, sampling: Sampling, model: LoadedModel) -> bool:
    """Whether an output ends with this token."""
    return token_id in sampling.stop_token_ids or (token_id in model.eos_token_ids and not sampling.ignore_eos)
