"""What of a prompt nodes have cached, as the KV manager has found it, and what that is worth to a node that waits.

A node with a part of the prompt computes the rest of it alone. What it has below its device comes in first: host memory
at the rate of the node's moves, an SSD at the rate of a common one. Between nodes nothing moves: what another node has
is computed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from shared.estimator.batching import PRIOR_KV_BYTES_PER_S, rate_of
from shared.messages.blocks import WarmNode
from shared.messages.nodes import NodeState
from shared.messages.placement import GroupLoad
from shared.messages.prefixes import PromptPrefix

SSD_BYTES_PER_S = 2e9  # reads of a common NVMe device
LEAST_SHARE = 0.5  # of a prompt: with less of it, a request that has to wait may as well do so anywhere


class WarmPrefix(NamedTuple):
    """Of one request."""

    prefix: PromptPrefix
    nodes: Mapping[str, WarmNode]

    @classmethod
    def of(cls, prefix: PromptPrefix, nodes: Iterable[WarmNode]) -> WarmPrefix:
        """As the KV manager answers."""
        return cls(prefix, {one.node: one for one in nodes})

    def tokens_at(self, node: str) -> int:
        """Of the prompt, found there."""
        return self.prefix.tokens(self.nodes[node].num_names) if node in self.nodes else 0

    def load_at(self, load: GroupLoad, node: str) -> GroupLoad:
        """The request as it is at a node."""
        return msgspec.structs.replace(load, found_tokens=self.tokens_at(node))

    def bring_in_s(self, known: NodeState, model: str) -> float:
        """Until all that is found there is on the device."""
        warm = self.nodes.get(known.node)
        if warm is None:
            return 0.0
        name_bytes = self.prefix.every_tokens * rate_of(known, model).kv_token_bytes
        per_s = known.kv_bytes_per_s or PRIOR_KV_BYTES_PER_S
        return name_bytes * ((warm.num_host + warm.num_ssd) / per_s + warm.num_ssd / SSD_BYTES_PER_S)

    def home(self, prompt_tokens: int) -> str:
        """The node that has most of the prompt, if that is `LEAST_SHARE` of it; else ``""``."""
        best = max(self.nodes, key=lambda node: (self.tokens_at(node), node), default="")
        return best if self.tokens_at(best) >= LEAST_SHARE * prompt_tokens else ""
