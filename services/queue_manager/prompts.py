"""Prompts that a node has yet to compute: whoever begins there has its first token behind them.

An engine computes prompts one behind the other, in the rows that decoding leaves of a step. So what is left of them is
the unfinished work of a queue with one server (Kleinrock, Queueing Systems I, 1975, §1.2): it jumps by a prompt's time
when that is pulled, and falls by a second a second.
"""

from __future__ import annotations

from collections.abc import Sequence

from services.queue_manager.groups import RequestGroups
from services.queue_manager.state import Group, Node, Request, State
from shared.batching import batching
from shared.estimator import MODEL_ERROR
from shared.wait import Wait


class Prompts:
    """Owns `Node.prompts_until_s`."""

    def __init__(self, state: State, groups: RequestGroups) -> None:
        self._state = state
        self._groups = groups

    def pulled(self, node: Node, group: Group, taken: Sequence[Request], now: float) -> None:
        """The node has taken these of a group, which have prompts to be computed.

        As long as nobody knows how fast the node is, nothing is reckoned: a prior that is too slow would stay.
        """
        if not any(rate.model == group.model for rate in node.known.rates):
            return
        work = batching(self._groups.calibration.expected(node.known), self._groups.load(group, now))
        if work.prompt_tokens:
            num_running = sum(self._state.groups[gid].num_running for gid in node.queue)
            token_s = work.prompt_at(num_running) / work.prompt_tokens
            prompts_s = token_s * sum(request.prompt_tokens for request in taken)
            node.prompts_until_s = max(now, node.prompts_until_s) + prompts_s


def prompts_wait(node: Node, now: float) -> Wait:
    """Until the prompts before one that comes now are computed."""
    return Wait(max(0.0, node.prompts_until_s - now), 0.0).give_or_take(MODEL_ERROR)
