"""Requests that leave a node that only prefills, with their KV, when their prompts are computed (DistServe, OSDI'24).

They are handed over as those are that a plan moves (`evictions`), so their tokens, streams and traces stay what they
are. Which node goes on with them, the queue manager decides; whether one can, it has told (`VirtualQueue`). A request
stays to its end where that is nearer than another node, where host memory has no room for its KV just now, and where it
came with KV: it was sent here to go on. One whose KV was lost again and again stays as well, whatever the reason.

Where a prompt takes several steps, its KV is read while the later ones run (`shared.estimator.read_ahead`): the image
is open from the first of them on, and becomes whole when the request leaves.
"""

from __future__ import annotations

from gpu_node.agent.decisions.actions import AgentAction, DropImages, ImageBegun, SayOpened, Tell
from gpu_node.agent.decisions.ledger import Ledger, RunningAttempt
from gpu_node.agent.decisions.telling.self_report import SelfReport
from gpu_node.agent.decisions.told_queue import ToldQueue
from gpu_node.engine.process.protocol.growth_protocol import OpenImages
from shared.config.engines.engine import EngineOptions
from shared.estimator import read_ahead
from shared.estimator.batching import BLOCK_TOKENS, rate_of
from shared.estimator.phases import is_worth_moving
from shared.messages.nodes.nodes import NodeState
from shared.messages.requests.requests import Attempt, KvOpened

MAX_MOVED_ATTEMPTS = 3
"""Of a request, attempts that leave: if none of them has ended elsewhere, the next one stays."""

UNSEEN_BLOCKS = 2
"""Of a choice, that an image may have beyond the tokens that are known here: a part of one, and steps in flight."""


class Prefilled:
    """Owns nothing: which requests leave follows from what runs here and what the queue manager has told."""

    def __init__(
        self, node: str, epoch: str, options: EngineOptions, ledger: Ledger, report: SelfReport, queue: ToldQueue
    ) -> None:
        self._node = node
        self._epoch = epoch
        self._options = options
        self._ledger = ledger
        self._report = report
        self._queue = queue

    def leaving(self) -> list[Attempt]:
        """Those that leave now; O(requests that run here), of which there are few where they leave."""
        if not self._queue.decoded_elsewhere:
            return []
        begun = [(request_id, run) for request_id, run in self._ledger.running.items() if self._may_leave(run)]
        if not begun:
            return []
        node = self._report.state
        byte_limit = self._options.evicted_kv_bytes - self._report.stats.evicted_kv_bytes
        leaving: list[Attempt] = []
        for request_id, run in begun:
            if not _is_worth_it(node, run):
                continue
            num_bytes = _most_bytes(node, run)
            if num_bytes <= byte_limit:
                byte_limit -= num_bytes
                leaving.append(Attempt(request_id, run.attempt))
        return leaving

    def _may_leave(self, run: RunningAttempt) -> bool:
        is_able = run.is_fresh and run.has_begun and run.attempt < MAX_MOVED_ATTEMPTS
        return is_able and run.model in self._queue.decoded_elsewhere

    def opening(self) -> list[AgentAction]:
        """Those whose images are read from now on; what steps of a model cost is known behind the first of them."""
        if not self._queue.read_ahead:
            return []
        able = [(request_id, run) for request_id, run in self._ledger.running.items() if self._may_open(run)]
        if not able:
            return []
        node, opening = self._report.state, []
        for request_id, run in able:
            if _is_worth_it(node, run) and read_ahead.pays(node, run.model, run.prompt_tokens):
                run.is_open = True
                opening.append(request_id)
        return [Tell(OpenImages(opening))] if opening else []

    def _may_open(self, run: RunningAttempt) -> bool:
        is_new = run.is_fresh and not (run.has_begun or run.is_open or run.is_fetching)
        return is_new and run.attempt < MAX_MOVED_ATTEMPTS and run.model in self._queue.read_ahead

    def begun(self, event: ImageBegun) -> list[AgentAction]:
        """There is something to read of one of these: the queue manager knows for which node."""
        attempt = event.attempt
        run = self._ledger.find(attempt.request_id, attempt.attempt)
        if run is None:
            return [DropImages([attempt])]
        run.image_bytes = event.ticket.num_bytes
        return [SayOpened(KvOpened(node=self._node, epoch=self._epoch, request=attempt, image=event.ticket))]


def _is_worth_it(node: NodeState, run: RunningAttempt) -> bool:
    rest_tokens = run.max_tokens - min(run.num_tokens.values(), default=0)
    return is_worth_moving(node, run.model, run.prompt_tokens + run.output_tokens, rest_tokens)


def _most_bytes(node: NodeState, run: RunningAttempt) -> int:
    """Of its image, beside what the engine has taken for it already."""
    num_tokens = run.prompt_tokens + run.output_tokens + UNSEEN_BLOCKS * BLOCK_TOKENS * len(run.num_tokens)
    return max(0, num_tokens * rate_of(node, run.model).kv_token_bytes - run.image_bytes)
