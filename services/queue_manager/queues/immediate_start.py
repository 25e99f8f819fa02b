"""At which node a newcomer begins, while it begins at once at any: where it costs the promises least.

A batch that has room takes a request at once, so none waits; what the choice decides is how long answers take, and so
which keep what was promised. With r requests there, the newcomer's answer of n tokens takes
(`shared.estimator.batching`; QLM's C = W + P + D, SoCC'24 §5, W = 0) ::

    answer_s(n) = prompts_s + first_token_at(r + 1) + (n - 1) * pace_at(r + 1)

behind prompts that the node has taken and not computed (`waits.prompts`), and breaks a promise of t seconds where n is
too large. Lengths of answers are log-normal with the mean and the deviation that were learnt, so the share of answers
that are too long is known before any of them, for the newcomer and for each of the r others, who go from ``pace_at(r)``
to ``pace_at(r + 1)``. The newcomer goes where it breaks fewest promises::

    P(late | r + 1) + Σ_r [P(late | r + 1) - P(late | r)] + SECONDS_WEIGHT * shares + FIRST_WEIGHT * first_token_s

A node that has something of the prompt in a cache computes the rest of it (`warm_prefix`): its prompt is shorter, for
the newcomer and for the others, which it keeps from their steps. What it has below its device comes in beside the
prompts before it.

Where nearly none are in danger, time decides, as shares of what was promised: ``answer_s / promise_s`` and, for each of
the others, ``prompt_rows_s + o * row_s`` by which their steps grow; and the time to the first token, for which a client
looks at an empty page, whatever was promised for the end. So devices part by themselves: work that has time fills
batches in which no request is in a hurry, and urgent work has small ones.

A request that has time need not begin at once. It does as long as that does no harm: where, at all nodes, more than
`MAX_LATE` of a kind would be late because of the size of the batch, or where an urgent request waits for the places, it
waits, and the batch keeps its pace (`batch_limit`). The bound is on what all do together: each alone does little.
"""

from __future__ import annotations

import math

from services.queue_manager.queues.node_phases import takes_phase
from services.queue_manager.queues.warm_prefix import WarmPrefix
from services.queue_manager.state.node import Node, Promises
from services.queue_manager.state.node_counts import NOTHING_HELD, PATIENCE_S, promised_end, promises, with_slack
from services.queue_manager.state.state import State
from shared.estimator.batching import (
    BLOCK_TOKENS,
    Batching,
    batching,
    held_tokens,
    num_seqs,
    rate_of,
    residual_tokens,
)
from shared.estimator.harm import MAX_LATE, late_by_batch, late_share
from shared.messages.nodes.placement import GroupLoad, RequestShape
from shared.messages.requests.slo import Slo

SECONDS_WEIGHT = 0.05  # of shares of promised times beside promises that are broken
FIRST_WEIGHT = 0.05  # of a second until the first token, beside promises that are broken


class ImmediateStarts:
    """Owns nothing: every answer is computed from the state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def best(
        self, load: GroupLoad, slo: Slo, warm: WarmPrefix | None = None, *, but: str = "", only: str = ""
    ) -> Node | None:
        """Of the nodes at which such a request begins at once the one that it costs least; None if there is none.

        All are looked at ``but`` one, which it has left; or one ``only``.

        Where nodes have something of its prompt, each is weighed with what it has. O(nodes x kinds of promises there),
        but for nodes that have changed.
        """
        has_time = slo.start_by_s(0.0) > PATIENCE_S
        if has_time and self._is_wanted(load):
            return None
        best: Node | None = None
        least = (math.inf, 0, "")
        for node in self._state.nodes.values():
            if (
                node.model != load.model
                or node.node == but
                or only not in ("", node.node)
                or node.known.is_loading
                or not node.known.can_serve(load.model, load.needs)
                or not takes_phase(self._state, node, load.model, load.needs, load.phase)
            ):
                continue
            here = load if warm is None else warm.load_at(load, node.known)
            bring_in_s = 0.0 if warm is None else warm.bring_in_s(node.known, load.model)
            cost = self._cost(node, here, slo, bring_in_s, has_time=has_time)
            # where nothing is known of their costs, nodes are alike: then the emptiest
            if cost is not None and (order := (cost, node.num_members, node.node)) < least:
                best, least = node, order
        return best

    def _is_wanted(self, load: GroupLoad) -> bool:
        """Whether a request waits at a node with the model, for such a place, that was not told to leave the batch its
        pace."""
        waiting = (self._state.nodes.get(name) for name in self._state.waiting_at)
        return any(
            node is not None
            and node.model == load.model
            and node.known.serves(load.phase)
            and any(beside is None for _, _, beside in node.told)
            for node in waiting
        )

    def _cost(self, node: Node, load: GroupLoad, slo: Slo, bring_in_s: float, *, has_time: bool) -> float | None:
        """None where there is no room, a model has to be loaded before, or others would be harmed too much."""
        waiting = NOTHING_HELD if has_time else with_slack(self._state, node)
        num_members = max(node.num_running, node.num_members - waiting.num_requests)
        if num_members >= num_seqs(node.known):
            return None
        promised = promises(self._state, node)
        known_tokens = promised.known_tokens - waiting.known_tokens
        if math.isinf(promised.per_s) or not has_memory(node, load, num_members, known_tokens):
            return None
        work = batching(node.known, load)
        num_running = num_members + 1
        after_s = work.pace_at(num_running)
        if has_time and late_by_batch(work, promised.ends, num_running) > MAX_LATE:
            return None
        harm = harm_of_one_more(work, promised, num_running - 1)
        end_s, token_s = promised_end(slo)
        unread_s = max(0.0, node.unread.until_s - self._state.now_s)
        first_s = max(unread_s, bring_in_s) + work.first_token_at(num_running)
        late = late_share(work, end_s - first_s, token_s, after_s)
        answer_s = first_s + (work.output_tokens - 1) * after_s
        delay_s = work.prompt_rows_s + work.num_draws * work.row_s
        shares = answer_s / min(PATIENCE_S, slo.start_by_s(0.0)) + delay_s * promised.per_s
        return late + harm + SECONDS_WEIGHT * shares + FIRST_WEIGHT * first_s


def harm_of_one_more(work: Batching, promised: Promises, num_running: int) -> float:
    """Promises that are expected to be broken because of one more in a batch of so many, to which these were made."""
    before_s, after_s = work.pace_at(num_running), work.pace_at(num_running + 1)
    first_s = work.chunks * work.step_s
    harm = 0.0
    for end_s, token_s, number in promised.kinds:
        late = late_share(work, end_s - first_s - work.prompt_rows_s, token_s, after_s)
        harm += number * (late - late_share(work, end_s - first_s, token_s, before_s))
    return harm


def has_memory(node: Node, load: RequestShape, num_members: int, known_tokens: int) -> bool:
    """Whether there is KV memory for one more beside so many that hold so much, and half of what it will need.

    A member that runs has as much of its answer behind it as before it, on average. Alone, a request always has a try.
    """
    kv_tokens = rate_of(node.known, load.model).kv_tokens
    if not kv_tokens or not num_members:
        return True
    drawn = residual_tokens(max(1.0, load.mean_output_tokens), load.std_output_tokens) + BLOCK_TOKENS - 1
    too_few = (load.mean_prompt_tokens + load.mean_output_tokens) / 2
    return known_tokens + num_members * drawn + load.kept_tokens + held_tokens(load) + too_few <= kv_tokens
