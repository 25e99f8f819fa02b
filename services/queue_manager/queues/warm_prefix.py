"""What of a prompt nodes have cached, as the KV manager has found it, and what that is worth to a node that waits.

A node with a part of the prompt computes the rest of it alone. What it has below its device comes in first: host memory
at the rate of the node's moves, an SSD at the rate of a common one. What another node has on its device or in host
memory is read there, where that is quicker than computing it by far (`shared.estimator.prefix_fetch`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from shared.estimator.batching import PRIOR_KV_BYTES_PER_S, rate_of
from shared.estimator.prefix_fetch import PrefixCost, most_tokens, prefix_cost
from shared.messages.memory.blocks import WarmNode
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import GroupLoad
from shared.messages.prefixes.prefix_sources import PrefixSource
from shared.messages.prefixes.prefixes import PromptPrefix

SSD_BYTES_PER_S = 2e9  # reads of a common NVMe device
MAX_GIVERS = 4  # nodes with most of a prompt that are looked at as sources
LEAST_SHARE = 0.5  # of a prompt: with less of it, a request that has to wait may as well do so anywhere


class PrefixFetch(NamedTuple):
    """Of a prompt, what a node would read in another one's cache."""

    giver: NodeState
    num_tokens: int
    """From the first one on: with these it begins."""
    cost: PrefixCost

    def source(self, model: str) -> PrefixSource:
        """As the node is told."""
        assert self.giver.door is not None
        kv_format = rate_of(self.giver, model).kv_format
        return PrefixSource(self.giver.node, self.giver.door, self.num_tokens, kv_format, self.cost.within_s)


class WarmPrefix(NamedTuple):
    """Of one request."""

    prefix: PromptPrefix
    nodes: Mapping[str, WarmNode]
    givers: tuple[NodeState, ...] = ()
    """Of these nodes, those that let others read what they have; most first, a few."""

    @classmethod
    def of(cls, prefix: PromptPrefix, nodes: Iterable[WarmNode], known: Iterable[NodeState] = ()) -> WarmPrefix:
        """As the KV manager answers; ``known`` are the nodes that may be read from, whatever they have."""
        found = {one.node: one for one in nodes}
        givers = [node for node in known if node.door is not None and node.node in found]
        givers.sort(key=lambda node: (-found[node.node].num_near, node.node))
        return cls(prefix, found, tuple(givers[:MAX_GIVERS]))

    def tokens_at(self, node: str) -> int:
        """Of the prompt, found there."""
        return self.prefix.tokens(self.nodes[node].num_names) if node in self.nodes else 0

    def load_at(self, load: GroupLoad, known: NodeState) -> GroupLoad:
        """The request as it is at a node."""
        return msgspec.structs.replace(load, found_tokens=self.tokens_for(known, load.model))

    def tokens_for(self, known: NodeState, model: str) -> int:
        """Of the prompt, those that the node need not compute: found there, or fetched."""
        fetch = self.fetch_to(known, model)
        return self.tokens_at(known.node) if fetch is None else fetch.num_tokens

    def fetch_to(self, known: NodeState, model: str) -> PrefixFetch | None:
        """What the node would best fetch; None where it has, or computes, all of it as soon."""
        if known.door is None:
            return None
        own = self.tokens_at(known.node)
        fetches = (self._fetch(giver, known, model, own) for giver in self.givers if giver.node != known.node)
        paying = [one for one in fetches if one is not None and one.cost.pays]
        return max(paying, key=lambda one: one.cost.compute_s - one.cost.fetch_s, default=None)

    def fetch_anywhere(self, model: str, giver: str = "") -> PrefixFetch | None:
        """What a node like the giver that has nothing would fetch; without a name, from the node that has most."""
        for known in self.givers:
            if giver in ("", known.node):
                fetch = self._fetch(known, known, model, 0)
                return fetch if fetch is not None and fetch.cost.pays else None
        return None

    def _fetch(self, giver: NodeState, taker: NodeState, model: str, own: int) -> PrefixFetch | None:
        """Whether or not it pays; None where there is nothing more."""
        num_tokens = min(self.prefix.tokens(self.nodes[giver.node].num_near), own + most_tokens(giver, model))
        if num_tokens <= own:
            return None
        return PrefixFetch(giver, num_tokens, prefix_cost(giver, taker, model, own, num_tokens))

    def bring_in_s(self, known: NodeState, model: str) -> float:
        """Until all that is found there, or fetched, is on the device."""
        fetch = self.fetch_to(known, model)
        return self._lift_s(known, model) + (fetch.cost.fetch_s if fetch is not None else 0.0)

    def _lift_s(self, known: NodeState, model: str) -> float:
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
