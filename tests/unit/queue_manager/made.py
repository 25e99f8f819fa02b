"""Requests and groups for tests, made as the queue manager makes them."""

from __future__ import annotations

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.state.group import Group
from services.queue_manager.state.grouping import LEAST_BATCH
from services.queue_manager.state.request import Request
from services.queue_manager.state.state import State
from shared.config.services.queue import QueueOptions
from shared.messages.requests.requests import EvictedRequest
from shared.messages.requests.slo import Slo

SOON = Slo("interactive", deadline_s=20.0)
LATER = Slo("batch", deadline_s=3600.0)
PAIRS = QueueOptions(delta=2 / LEAST_BATCH)  # groups of two
LARGE = QueueOptions(delta=32 / LEAST_BATCH)


class MadeGroups(RequestGroups):
    """Request groups with a state of their own."""

    def __init__(self, options: QueueOptions = PAIRS) -> None:
        self.state = State()
        super().__init__(self.state, options, {})

    def add(
        self,
        name: str,
        model: str = "a",
        slo: Slo = SOON,
        tenant: str = "default",
        prompt_tokens: int = 8,
        max_tokens: int = 100,
        arrival_s: float = 0.0,
        attempt: int = 0,
        seat: str = "",
    ) -> Request:
        """A request that has joined its group when it arrived."""
        request = Request(
            request_id=name,
            gateway="gw",
            model=model,
            slo=slo,
            tenant=tenant,
            prompt_tokens=prompt_tokens,
            max_tokens=max_tokens,
            arrival_s=arrival_s,
            attempt=attempt,
        )
        self.state.requests[name] = request
        self.join(request, arrival_s, seat)
        return request

    def group_of(self, request: Request) -> Group:
        return self.state.groups[request.group]

    def take_out(self, request: Request) -> Group:
        """The request has left its group, which is closed if it was the last."""
        group = self.leave(request)
        if not group.num_members:
            self.close(group)
        return group

    def finish(self, request: Request) -> None:
        self.take_out(request)
        del self.state.requests[request.request_id]

    def evict(self, request: Request, kv_at: str = "n0", kv_tokens: int = 12, output_tokens: int = 4) -> Group:
        """The node has given the request back."""
        origin = self.take_out(request)
        return self.put_back(
            request, origin, EvictedRequest(request.request_id, request.attempt, output_tokens, kv_tokens, kv_at)
        )
