"""Which request each prompt's first block belongs to: where two begin alike, the live engine would share blocks."""

from __future__ import annotations

from services.simulator.fast.plain import FastEngineError
from services.simulator.fast.roster import FastRoster
from shared.messages.requests.payload import Payload

MIN_KNOWN = 1024
"""First blocks; beyond so many, those whose content is gone are forgotten as often as their number doubles."""


class Beginnings:
    """Of the prompts of one loaded model."""

    def __init__(self, block_size: int, roster: FastRoster) -> None:
        self._block_size = block_size
        self._roster = roster
        self._first: dict[tuple[str, tuple[int, ...]], str] = {}
        self._max_known = MIN_KNOWN

    def __len__(self) -> int:
        return len(self._first)

    def check(self, payload: Payload) -> None:
        """Raises `FastEngineError` where another request that is here, or whose blocks are, begins like this one."""
        if len(payload.prompt_token_ids) < self._block_size:
            return  # its first block has tokens of its answer
        first = payload.owner, tuple(payload.prompt_token_ids[: self._block_size])
        other = self._first.get(first, payload.request_id)
        if other != payload.request_id and self._is_here(other):
            raise FastEngineError(
                [f"prompts that begin alike, such as those of requests {other}, {payload.request_id}"]
            )
        self._first[first] = payload.request_id
        if len(self) > self._max_known:
            self._first = {first: other for first, other in self._first.items() if self._is_here(other)}
            self._max_known = max(MIN_KNOWN, 2 * len(self))

    def _is_here(self, request_id: str) -> bool:
        roster = self._roster
        is_cached = roster.blocks.num_kept(request_id) > 0 or roster.swapped.has_copies(request_id)
        return request_id in roster.requests or is_cached
