"""How long an engine's steps take: the three numbers that predict a step on one device with one model.

Every step reads the weights once; every row of it is multiplied with them; every row reads the keys and values of its
context. (NanoFlow, OSDI'25, §3: T_mem and T_compute; added here, since a step's operators run one after another.)
"""

from __future__ import annotations

import msgspec


class StepCost(msgspec.Struct, frozen=True):
    """Seconds of a step; learnt from measured steps, or computed from published numbers of the hardware."""

    step_s: float
    """Of every step: launching it, and reading the weights."""
    token_s: float
    """Of a row: its part of the products."""
    context_token_s: float
    """Of a token whose keys and values a row attends to."""

    def predict_s(self, num_tokens: float, num_context_tokens: float) -> float:
        """Duration of a step of so many rows, which attend to so many tokens together."""
        return self.step_s + self.token_s * num_tokens + self.context_token_s * num_context_tokens


class ModelRate(msgspec.Struct, frozen=True):
    """What one model can do on one node."""

    model: str
    cost: StepCost
    """Of the node's device with this model, as far as it has been learnt."""
    kv_tokens: int
    """Tokens whose keys and values fit into the device's memory beside the weights."""
    kv_token_bytes: int
    """Keys and values of one token."""
    load_s: float
    """Until the model could serve here, from where its weights are now: 0.0 while it is loaded."""
