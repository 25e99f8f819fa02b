"""Images that grow while prompts are computed, as lengths (live: `gpu_node.engine.growing_images`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.growing_images import MAX_GROWING, SPARE_BLOCKS
from gpu_node.engine.requests.image import Growth
from services.simulator.fast.parking import FastParking
from services.simulator.fast.roster import FastRoster


@dataclass(slots=True)
class Begun:
    """An image that may be read, as far as its blocks are there."""

    attempt: int
    number: int = 0
    """0 before its first blocks."""
    num_blocks: int = 0


class FastGrowing:
    """Of one engine."""

    def __init__(self, parking: FastParking, move: Callable[[int], None]) -> None:
        """``move`` hears of bytes that leave the device."""
        self._parking = parking
        self._move = move
        self._growing: dict[str, Begun] = {}
        self._model: LoadedModel | None = None
        self._roster: FastRoster | None = None

    def serve(self, model: LoadedModel, roster: FastRoster) -> None:
        """The engine has this model now."""
        self._model, self._roster = model, roster

    def open(self, request_ids: Iterable[str]) -> None:
        """As the live one."""
        for request_id in request_ids:
            attempt = self._roster.attempt_of(request_id) if self._roster is not None else None
            if attempt is not None and request_id not in self._growing and len(self._growing) < MAX_GROWING:
                self._growing[request_id] = Begun(attempt)

    def take(self, request_id: str, num_computed_tokens: int, *, is_swapped: bool) -> Begun | None:
        """What has begun of a request that is taken out now, and can be gone on from."""
        begun = self._growing.pop(request_id, None)
        if begun is None or not begun.number:
            return None
        assert self._model is not None
        if is_swapped or begun.num_blocks > num_computed_tokens // self._model.block_size:
            self._parking.end(begun.number)
            return None
        return begun

    def yield_one(self) -> bool:
        """As the live one."""
        begun = [name for name, one in self._growing.items() if one.number]
        if begun:
            self._end(begun[-1])
        return bool(begun)

    def release(self, numbers: Iterable[int]) -> None:
        """These are not read any more."""
        gone = set(numbers)
        for name, one in list(self._growing.items()):
            if one.number in gone:
                self._end(name)

    def grow(self, make: Callable[[int, int], memoryview]) -> tuple[list[Growth], list[int]]:
        """As the live one; there is no content."""
        del make
        growths = [growth for name in list(self._growing) if (growth := self._grow(name)) is not None]
        return growths, self._parking.take_ended()

    def _grow(self, request_id: str) -> Growth | None:
        one, model, roster = self._growing[request_id], self._model, self._roster
        if model is None or roster is None or roster.attempt_of(request_id) != one.attempt:
            self._end(request_id)
            return None
        sequence = roster.requests[request_id]
        num_computed = roster.num_computed(sequence) if request_id in roster.running else 0
        num_blocks = min(num_computed, sequence.num_prompt_tokens) // model.block_size
        most_blocks = sequence.num_prompt_tokens // model.block_size
        if num_blocks <= one.num_blocks:
            return None
        if not one.number:
            number = self._parking.lend((most_blocks + SPARE_BLOCKS) * model.block_bytes)
            if number is None or num_blocks == most_blocks:
                self._parking.release(number or 0)
                self._end(request_id)
                return None
            one.number = number
        self._move((num_blocks - one.num_blocks) * model.block_bytes)
        one.num_blocks = num_blocks
        most_bytes = (most_blocks + SPARE_BLOCKS) * model.block_bytes
        return Growth(request_id, one.attempt, one.number, num_blocks * model.block_bytes, most_bytes)

    def _end(self, request_id: str) -> None:
        one = self._growing.pop(request_id)
        if one.number:
            self._parking.end(one.number)
