"""Images that others read while their prompts are computed: behind each step, blocks that are full are copied out.

A request that leaves for another node behind its first token has then little left to copy and to send (as DistServe and
Splitwise, which send a layer while the next one is computed). The blocks of a prompt do not change once they are full,
so what lies in an image stays right whatever becomes of the request here. A copy waits for the steps that were
submitted, as all moves of blocks do, and holds what these have computed as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpu_node.engine.border.executor import BlocksStayError
from gpu_node.engine.evictions.eviction import Eviction
from gpu_node.engine.requests.awaited_grammars import AwaitedGrammars
from gpu_node.engine.requests.image import BegunImage, BlockFormat, Growth
from gpu_node.engine.residents import Resident, Residents

SPARE_BLOCKS = 4
"""Behind those of the prompt: for what is drawn until a request has left."""

MAX_GROWING = 16
"""At a time; requests beyond leave in one piece."""

MakeMemory = Callable[[int, int], memoryview]
"""Memory for an image of this number, of so many bytes, which others can read; `OSError` where there is none."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Growing:
    request_id: str
    attempt: int
    image: BegunImage | None = None
    """None before its first blocks."""


class GrowingImages:
    """Of one engine. Their room is the eviction's, as of images that are whole."""

    def __init__(
        self, residents: Residents, eviction: Eviction, awaiting: AwaitedGrammars, interrupts: Callable[[], None]
    ) -> None:
        """``interrupts`` hears that moves were made: what they take is no gap between steps."""
        self._residents = residents
        self._eviction = eviction
        self._awaiting = awaiting
        self._interrupts = interrupts
        self._growing: dict[str, _Growing] = {}

    def open(self, request_ids: Iterable[str]) -> None:
        """Let the images of these grow from now on; unknown requests, and those beyond the bound, are left out."""
        for request_id in request_ids:
            queued = (one.scheduler.attempt_of(request_id) for one in self._residents)
            attempts = [one for one in (self._awaiting.attempt_of(request_id), *queued) if one is not None]
            if attempts and request_id not in self._growing and len(self._growing) < MAX_GROWING:
                self._growing[request_id] = _Growing(request_id, attempts[0])

    def take(self, request_id: str) -> BegunImage | None:
        """The beginning of a request that is taken out now; it does not grow any more. None where there is none."""
        growing = self._growing.pop(request_id, None)
        return None if growing is None else growing.image

    def yield_one(self) -> bool:
        """The newest ends: its room is needed for a request that leaves. False where there is none."""
        begun = [one for one in self._growing.values() if one.image is not None]
        if begun:
            self._end(begun[-1])
        return bool(begun)

    def release(self, numbers: Iterable[int]) -> None:
        """These are not read any more: they end, which is told to later readers. Unknown ones are ignored."""
        gone = set(numbers)
        for one in list(self._growing.values()):
            if one.image is not None and one.image.number in gone:
                self._end(one)

    def grow(self, make: MakeMemory) -> tuple[list[Growth], list[int]]:
        """Copy out what is new; what there is more of each image, and numbers of those of which nothing more comes."""
        growths = [growth for one in list(self._growing.values()) if (growth := self._look(one, make)) is not None]
        return growths, self._eviction.take_ended()

    def _look(self, one: _Growing, make: MakeMemory) -> Growth | None:
        for resident in self._residents:
            if resident.scheduler.attempt_of(one.request_id) == one.attempt:
                return self._grow(resident, one, make)
        if self._awaiting.attempt_of(one.request_id) != one.attempt:  # it has ended, or left without its image
            self._end(one)
        return None

    def _grow(self, resident: Resident, one: _Growing, make: MakeMemory) -> Growth | None:
        model = resident.model
        blocks, num_prompt_tokens = resident.scheduler.prompt_blocks(one.request_id)
        num_before = one.image.num_blocks if one.image is not None else 0
        if len(blocks) <= num_before:
            return None
        most_blocks = num_prompt_tokens // model.block_size
        if one.image is None and len(blocks) == most_blocks:
            self._end(one)  # all of it is there at once
            return None
        most_blocks += SPARE_BLOCKS
        try:
            image = one.image or self._begin(BlockFormat.of(model), most_blocks, make)
            if image is None:
                self._end(one)
                return None
            one.image = image
            self._interrupts()
            num_bytes = (len(blocks) - num_before) * model.block_bytes
            content = self._eviction.read(model.name, blocks[num_before:], num_bytes)
        except (BlocksStayError, OSError) as error:
            log.warning("KV of request %s leaves in one piece: %s", one.request_id, error)
            self._end(one)
            return None
        image.write(BlockFormat.of(model).content_bytes(num_before), content)
        one.image = BegunImage(image.number, image.memory, len(blocks))
        readable, most = len(blocks) * model.block_bytes, most_blocks * model.block_bytes
        return Growth(one.request_id, one.attempt, image.number, readable, most)

    def _begin(self, form: BlockFormat, most_blocks: int, make: MakeMemory) -> BegunImage | None:
        """None where host memory has no room for all of it."""
        number = self._eviction.lend(most_blocks * form.block_bytes)
        if number is None:
            return None
        try:
            return BegunImage(number, make(number, form.content_bytes(most_blocks)), 0)
        except OSError:
            self._eviction.release([number])
            raise

    def _end(self, one: _Growing) -> None:
        del self._growing[one.request_id]
        if one.image is not None:
            self._eviction.end(one.image.number)
