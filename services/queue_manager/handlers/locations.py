"""Requests that are placed when the KV manager has said who has the beginning of their prompts.

Its gateway asks that with the request. A request is accepted when it comes and placed when the answer is there: a
millisecond later, as a rule. No request waits for more than `WAIT_S`; a KV manager that was silent for so long is not
waited for until it has answered in time again. Then requests are placed blindly, as those are for which there is no
choice, or nothing was asked.
"""

from __future__ import annotations

from services.queue_manager.handlers.requests import Requests
from services.queue_manager.queues.warm_prefix import WarmPrefix
from services.queue_manager.state.state import Locating, State
from shared.messages.memory.blocks import Located
from shared.messages.nodes.nodes import NodeState
from shared.messages.requests.requests import Submit
from shared.service.core import Effect

WAIT_S = 0.02  # for an answer
MAX_LOCATING = 1_024  # requests that wait for an answer; further ones are placed blindly


class Locations:
    """Owns `State.locating` and `State.is_index_silent`."""

    def __init__(self, state: State, requests: Requests, *, is_on: bool, fetches: bool = False) -> None:
        """``fetches``: nodes read what others have cached."""
        self._fetches = fetches
        self._state = state
        self._requests = requests
        self._is_on = is_on

    @property
    def wake_at(self) -> float | None:
        """When the request that has waited longest is placed without an answer."""
        return next((one.due_s for one in self._state.locating.values()), None)

    def submit(self, message: Submit, now: float) -> list[Effect]:
        """Accept a first attempt, or take up a further one; wait for an answer, or place it at once."""
        effects, request = self._requests.accept(message, now)
        if request is None:
            return effects
        self._state.locating.pop(request.request_id, None)
        is_full = len(self._state.locating) >= MAX_LOCATING
        if message.prefix is None or self._state.is_index_silent or is_full or not self._has_choice(message.model):
            return [*effects, *self._requests.place(request, message, now)]
        self._state.locating[request.request_id] = Locating(message, now + WAIT_S)
        return effects

    def _has_choice(self, model: str) -> bool:
        holders = (node for node in self._state.nodes.values() if node.model == model and not node.known.is_loading)
        return self._is_on and len(list(holders)) > 1

    def located(self, answer: Located, now: float) -> list[Effect]:
        """It has answered; a request that waits for that is placed.

        One that comes back answers what it was asked meanwhile: what comes too late does not end its silence.
        """
        request = self._state.requests.get(answer.request_id)
        if request is None or request.attempt != answer.attempt:
            return []
        waiting = self._state.locating.get(answer.request_id)
        if waiting is not None or now < request.arrival_s + WAIT_S:
            self._state.is_index_silent = False
        if waiting is None:
            return []
        assert waiting.message.prefix is not None
        # where no node has it, or says so, what is found of such prompts on average is the better guess
        givers = self._givers(waiting.message.model, answer) if self._fetches else []
        warm = WarmPrefix.of(waiting.message.prefix, answer.nodes, givers) if answer.nodes else None
        return self._place(waiting.message, now, warm)

    def _givers(self, model: str, answer: Located) -> list[NodeState]:
        """Of the nodes with something of a prompt, those that serve."""
        nodes = (self._state.nodes.get(warm.node) for warm in answer.nodes)
        return [node.known for node in nodes if node is not None and node.model == model and not node.known.is_loading]

    def expire(self, now: float) -> list[Effect]:
        """Place those that have waited for too long."""
        late = [one.message for one in self._state.locating.values() if now >= one.due_s]
        if late:
            self._state.is_index_silent = True
        return [effect for message in late for effect in self._place(message, now, None)]

    def _place(self, message: Submit, now: float, warm: WarmPrefix | None) -> list[Effect]:
        del self._state.locating[message.request_id]
        return self._requests.place(self._state.requests[message.request_id], message, now, warm)
