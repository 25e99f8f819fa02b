"""Requests of which the KV manager is asked who has the beginning of their prompts, before they are placed.

A request is accepted when it comes and placed when the answer is there: a millisecond later, as a rule. Nobody waits
for more than `WAIT_S`; a KV manager that was silent for so long is asked now and then, and not waited for until it
answers. Then requests are placed blindly, as those are for which there is no choice, or nothing to ask.
"""

from __future__ import annotations

from services.queue_manager.handlers.requests import Requests
from services.queue_manager.queues.warm_prefix import WarmPrefix
from services.queue_manager.state.state import Locating, State
from shared.bus import streams
from shared.messages.blocks import Locate, Located
from shared.messages.prefixes import PromptPrefix
from shared.messages.requests import Submit
from shared.service.core import Effect, Send

WAIT_S = 0.02  # for an answer
PROBE_S = 1.0  # between two questions to one that is silent
MAX_LOCATING = 1_024  # requests that wait for an answer; further ones are placed blindly


class Locations:
    """Owns `State.locating` and `State.index`."""

    def __init__(self, state: State, requests: Requests, *, is_on: bool) -> None:
        self._state = state
        self._requests = requests
        self._is_on = is_on

    @property
    def wake_at(self) -> float | None:
        """When the request that has waited longest is placed without an answer."""
        return next((one.due_s for one in self._state.locating.values()), None)

    def submit(self, message: Submit, now: float) -> list[Effect]:
        """Accept a first attempt, or take up a further one; ask, or place it at once."""
        effects, request = self._requests.accept(message, now)
        if request is None:
            return effects
        self._state.locating.pop(request.request_id, None)
        prefix = message.prefix
        if prefix is None or not self._has_choice(message.model) or not self._may_ask(now):
            return [*effects, *self._requests.place(request, message, now)]
        question = _question(message, prefix)
        if self._state.index.is_silent or len(self._state.locating) >= MAX_LOCATING:
            return [*effects, question, *self._requests.place(request, message, now)]
        self._state.locating[request.request_id] = Locating(message, now + WAIT_S)
        return [*effects, question]

    def _has_choice(self, model: str) -> bool:
        holders = (node for node in self._state.nodes.values() if node.model == model and not node.known.is_loading)
        return self._is_on and len(list(holders)) > 1

    def _may_ask(self, now: float) -> bool:
        index = self._state.index
        if index.is_silent and now < index.asked_at_s + PROBE_S:
            return False
        index.asked_at_s = now
        return True

    def located(self, answer: Located, now: float) -> list[Effect]:
        """It has answered; whoever waits for that is placed."""
        self._state.index.is_silent = False
        waiting = self._state.locating.get(answer.request_id)
        if waiting is None or waiting.message.attempt != answer.attempt:
            return []
        assert waiting.message.prefix is not None
        # where nobody has it, or says so, what is found of such prompts on average is the better guess
        warm = WarmPrefix.of(waiting.message.prefix, answer.nodes) if answer.nodes else None
        return self._place(waiting.message, now, warm)

    def expire(self, now: float) -> list[Effect]:
        """Place those that have waited for too long."""
        late = [one.message for one in self._state.locating.values() if now >= one.due_s]
        if late:
            self._state.index.is_silent = True
        return [effect for message in late for effect in self._place(message, now, None)]

    def _place(self, message: Submit, now: float, warm: WarmPrefix | None) -> list[Effect]:
        del self._state.locating[message.request_id]
        return self._requests.place(self._state.requests[message.request_id], message, now, warm)


def _question(message: Submit, prefix: PromptPrefix) -> Effect:
    question = Locate(request_id=message.request_id, attempt=message.attempt, model=message.model, names=prefix.names)
    return Send(streams.KV, question, max_entries=streams.MAX_KV_LOG)
