"""Requests that are taken out of an engine, wherever in it they are, and what is kept of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gpu_node.engine.border.executor import Executor
from gpu_node.engine.evictions.eviction import Eviction
from gpu_node.engine.growing_images import GrowingImages
from gpu_node.engine.requests.awaited_grammars import AwaitedGrammars
from gpu_node.engine.requests.image import HandedOver, Kept
from gpu_node.engine.residents import Residents


class TakeOuts:
    """Between two steps, none of which is in flight."""

    def __init__(
        self,
        executor: Executor,
        residents: Residents,
        eviction: Eviction,
        awaiting: AwaitedGrammars,
        growing: GrowingImages,
    ) -> None:
        self._executor = executor
        self._residents = residents
        self._eviction = eviction
        self._awaiting = awaiting
        self._growing = growing

    def keep(self, request_ids: Iterable[str]) -> list[Kept]:
        """Take requests out and keep their state and KV in host memory, as far as it has room; without unknown ones."""
        leaving = list(dict.fromkeys(request_ids))
        self._call_home(leaving)
        nums_tokens = {request_id: self._keep(request_id) for request_id in leaving}
        return [Kept(request_id, num) for request_id, num in nums_tokens.items() if num is not None]

    def _call_home(self, request_ids: list[str]) -> None:
        """What lies at a receiver is kept from here."""
        for resident in self._residents:
            plan = resident.scheduler.call_home(request_ids)
            if not plan.is_empty:
                pending = self._executor.submit(replace(plan, model=resident.model.name))
                resident.scheduler.commit(plan, pending.result())

    def _keep(self, request_id: str) -> int | None:
        for resident in self._residents:
            if resident.scheduler.attempt_of(request_id) is not None:
                begun = self._growing.take(request_id)
                yields = self._growing.yield_one
                return self._eviction.keep(resident.scheduler, resident.model, request_id, begun, yields)
        is_awaiting = self._awaiting.drop(request_id)
        state = self._eviction.state(request_id)  # it may be out already
        if state is None:
            return 0 if is_awaiting else None
        return state.kv_tokens

    def hand_over(self, request_ids: Iterable[str]) -> list[HandedOver]:
        """Give away what is kept of evicted requests. Those that are back, or unknown, are left out."""
        images = []
        for request_id in request_ids:
            handed_over = None if self._is_here(request_id) else self._eviction.hand_over(request_id)
            if handed_over is not None:
                images.append(handed_over)
        return images

    def _is_here(self, request_id: str) -> bool:
        schedulers = (resident.scheduler for resident in self._residents)
        attempts = [self._awaiting.attempt_of(request_id), *(one.attempt_of(request_id) for one in schedulers)]
        return any(attempt is not None for attempt in attempts)
