"""Whether KV is worth sending while its prompt is computed, so that less is left behind the first token.

A prompt is computed a step at a time. What the steps before the last one fill can be copied and sent beside them; then
the pause between first and second token is that of the last step's KV, instead of that of all of it (DistServe,
OSDI'24; Splitwise, ISCA'24 §4.3, which sends a layer beside the next one: a step of a long prompt has a part of its
tokens in all layers, so that steps are the pieces here).
"""

from __future__ import annotations

from shared.estimator.batching import rate_of
from shared.estimator.hand_over import PRIOR_NETWORK_BYTES_PER_S, network_s
from shared.messages.nodes.nodes import NodeState

MIN_GAIN_S = 0.002
"""So much shorter the pause has to become: a reader takes some messages, and a copy waits for the steps before it."""


def pays(giver: NodeState, model: str, prompt_tokens: int) -> bool:
    """Whether a node that computes such a prompt lets its KV be read meanwhile.

    By its own network, as far as it knows that; it does not know who will go on.
    """
    rate = rate_of(giver, model)
    step_tokens = rate.step_tokens or giver.step_tokens
    if not step_tokens or prompt_tokens <= step_tokens:
        return False
    num_bytes = (prompt_tokens - step_tokens) * rate.kv_token_bytes
    copy_s = num_bytes / (giver.kv_bytes_per_s or PRIOR_NETWORK_BYTES_PER_S)
    return copy_s + network_s(None, giver, num_bytes) >= MIN_GAIN_S
