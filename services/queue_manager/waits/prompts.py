"""Prompts that a node has yet to compute: a request that begins there has its first token behind them.

An engine computes prompts one behind the other, in the rows that decoding leaves of a step. So what is left of them is
the unfinished work of a queue with one server (Kleinrock, Queueing Systems I, 1975, §1.2): it jumps by a prompt's time
when that is pulled, and falls by a second a second. Of that time the steps' decoding has its part; the prompts' own is
what they add to the work that is before others (c of `shared.estimator.batching`).
"""

from __future__ import annotations

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node, Unread
from services.queue_manager.state.request import Request
from services.queue_manager.state.state import State
from shared.estimator.batching import Batching, batching
from shared.estimator.estimator import Prompts


class Reading:
    """A pull: prompt after prompt is added to what the node has to compute."""

    def __init__(self, node: Node | None, token_s: float, share: float, now: float) -> None:
        """``token_s`` of a prompt, of which so large a share is its own."""
        self._node = node
        self._token_s = token_s
        self._share = share
        self._now = now

    def read(self, request: Request) -> float:
        """One that is pulled: when its prompt will have been computed. What was evicted has its keys and values."""
        node = self._node
        if node is None or request.kv_tokens:
            return self._now
        left_s = max(0.0, node.unread.until_s - self._now)
        prompt_s = self._token_s * request.prompt_tokens
        if prompt_s:
            share = (node.unread.share * left_s + self._share * prompt_s) / (left_s + prompt_s)
            node.unread = Unread(self._now + left_s + prompt_s, share)
        return self._now + left_s + prompt_s


class PromptLines:
    """Owns `Node.unread`."""

    def __init__(self, state: State, groups: RequestGroups, *, is_on: bool = True) -> None:
        self._state = state
        self._groups = groups
        self._is_on = is_on

    def reading(self, node: Node | None, group: Group | None, now: float) -> Reading:
        """Of members of a group that the node pulls now.

        As long as it is not known how fast the node is, nothing is reckoned: a prior that is too slow would stay.
        """
        if not self._is_on or node is None or group is None:
            return Reading(None, 0.0, 0.0, now)
        if not any(rate.model == group.model for rate in node.known.rates):
            return Reading(None, 0.0, 0.0, now)
        load = self._groups.load(group, now)
        work = batching(node.known, load)
        prompt_s = self._prompt_s(node, group.model, work, now)
        if not prompt_s:
            return Reading(node, 0.0, 0.0, now)
        return Reading(node, prompt_s / load.mean_prompt_tokens, min(1.0, work.prompt_s / prompt_s), now)

    def _prompt_s(self, node: Node, model: str, work: Batching, now: float) -> float:
        """Of one of a group, among all that comes: they are in the steps as well. Unread ones do not decode yet."""
        typical = self._groups.typical(model, now)
        others = batching(node.known, typical) if typical is not None else work

        def prompt_s(num_decoding: float) -> float:
            return others.prompt_at(num_decoding, work.prompt_tokens) + work.prompt_rows_s

        all_s = prompt_s(node.num_running)
        num_unread = left(node, now).wait_s / all_s if all_s else 0.0
        return prompt_s(max(0.0, node.num_running - num_unread))

    def finished(self, request: Request, now: float) -> None:
        """An answer that ends before its prompt was expected to be computed shows by how much the node is ahead."""
        node = self._state.nodes.get(request.node)
        if node is not None and request.begins_s > now:
            node.unread = Unread(node.unread.until_s - (request.begins_s - now), node.unread.share)


def left(node: Node, now: float) -> Prompts:
    """The prompts before one that comes now."""
    left_s = max(0.0, node.unread.until_s - now)
    return Prompts(left_s, node.unread.share * left_s)
