"""Beginnings of prompts between engines: what is cached here is copied for another one, and what it has is taken in.

Both happen between two steps. What is given is a copy, so nothing has to be held while it travels. What is taken in
lies in the prefix cache afterwards as if it had been computed here: requests find it, or do not, as they find all else.
(KV of one node read by another: Mooncake, Qin et al., FAST'25; Dynamo's KV block manager.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpu_node.engine.border.executor import BlocksStayError, Executor
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.evictions.eviction import Eviction
from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.memory.prefix import Prefix
from gpu_node.engine.memory.tiers.tier_lookup import FoundBlock
from gpu_node.engine.requests.image import BlockFormat, HandedOver, ImageError, SerialisedImage
from gpu_node.engine.residents import Residents
from shared.messages.prefixes.prefix_ask import MAX_PREFIX_BYTES, PrefixAsk
from shared.messages.requests.payload import Payload

if TYPE_CHECKING:
    from gpu_node.engine.evictions.prefix_codec import PrefixImage

SEQUENCE = -1
"""Stands for what is taken in, as long as that takes; no request's sequence has this number."""

log = logging.getLogger(__name__)


class PrefixExchange:
    """Of one engine. What it gives counts as an image until it has been fetched (`Eviction.lend`)."""

    def __init__(
        self, executor: Executor, residents: Residents, eviction: Eviction, interrupts: Callable[[], None]
    ) -> None:
        """``interrupts`` hears that moves were made: what they take is no gap between steps."""
        self._executor = executor
        self._residents = residents
        self._eviction = eviction
        self._interrupts = interrupts

    def find(self, model: str, token_ids: Sequence[int], owner: str = "") -> tuple[int, int]:
        """How many tokens of a text are found on the device, from the first on; and how many there or below it."""
        resident = self._residents.get(model)
        if resident is None:
            return 0, 0
        blocks = resident.scheduler.blocks
        found = blocks.lookup.found(token_ids, owner)
        on_device = len(blocks.match(token_ids, owner))
        return on_device * blocks.block_size, len(found) * blocks.block_size

    # --- to other engines ---------------------------------------------------------------------------------------------

    def copy(self, ask: PrefixAsk) -> HandedOver | None:
        """What is cached of a text, on the device or in host memory; None where that is nothing new, or cannot go."""
        resident = self._residents.get(ask.model)
        if resident is None or not ask.kv_format or BlockFormat.of(resident.model).cut != ask.kv_format:
            return None
        model, blocks = resident.model, resident.scheduler.blocks
        if ask.adapter and ask.adapter not in model.adapters:
            return None
        first = ask.from_token // model.block_size
        most = max(1, MAX_PREFIX_BYTES // max(1, model.block_bytes))
        found = blocks.lookup.found(ask.token_ids, ask.owner)[first : first + most]
        num_bytes = len(found) * model.block_bytes
        number = self._eviction.lend(num_bytes) if found else None
        if number is None:
            return None
        try:
            content = self._read(model.name, found, model.block_bytes)
        except BlocksStayError as error:
            log.warning("cached KV not given: %s", error)
            self._eviction.release([number])
            return None
        from gpu_node.engine.evictions.prefix_codec import PrefixImage, prefix_pieces  # as images: not all move them

        end = _end_of(blocks, ask.token_ids, first + len(found), ask.owner)
        image = PrefixImage(BlockFormat.of(model, ask.adapter), first, len(found), end.digest, content)
        return HandedOver(ask.request_id, ask.attempt, number, prefix_pieces(image), num_bytes)

    def _read(self, model: str, found: list[FoundBlock], block_bytes: int) -> memoryview:
        """Content of blocks, in their order: one read for each memory."""
        self._interrupts()
        on_device = [one.device_block for one in found if one.device_block is not None]
        in_host = [one.host_block for one in found if one.host_block is not None]
        parts: list[memoryview] = []
        if on_device:
            parts.append(self._eviction.read(model, on_device, len(on_device) * block_bytes))
        if in_host:
            parts.append(self._executor.read_blocks(model, in_host, swapped_out=True)[0])
        if len(parts) == 1 or not any(parts):
            return parts[0]
        sources = [iter(range(0, len(part), block_bytes)) for part in parts]
        numbers = [0 if one.device_block is not None else 1 for one in found]
        starts = [(parts[number], next(sources[number])) for number in numbers]
        return memoryview(b"".join(part[begin : begin + block_bytes] for part, begin in starts))

    # --- from other engines -------------------------------------------------------------------------------------------

    def take_in(self, payload: Payload, data: SerialisedImage) -> int:
        """Put what another engine has of a prompt into the cache; the tokens of it that are new here.

        `ImageError` where it cannot be used; then nothing has changed.
        """
        from gpu_node.engine.evictions.prefix_codec import decode_prefix  # as above

        image = decode_prefix(data)
        resident = self._residents.get(payload.model)
        if resident is None:
            raise ImageError(f"model {payload.model!r} is not loaded here")
        model, blocks = resident.model, resident.scheduler.blocks
        here = BlockFormat.of(model, payload.adapter)
        if image.format != here:
            raise ImageError(f"its blocks are {image.format}; here they are {here}")
        token_ids, last = payload.prompt_token_ids, image.first + image.num_blocks
        if last * model.block_size >= len(token_ids):
            raise ImageError(f"it has {last} blocks of a prompt of {len(token_ids)} tokens")
        if _end_of(blocks, token_ids, last, payload.owner).digest != image.digest:
            raise ImageError("it is of another prompt")
        if blocks.swapped.num_late_blocks:
            raise ImageError("blocks of the device wait to be copied out")
        matched = blocks.match(token_ids, payload.owner)
        if len(matched) < image.first:
            raise ImageError("what was here before it has gone")
        last = min(last, sum(map(blocks.is_held, matched)) + blocks.num_free_blocks)
        if last <= len(matched):
            return 0
        return self._write(model, blocks, payload, image, last)

    def _write(
        self, model: LoadedModel, blocks: BlockManager, payload: Payload, image: PrefixImage, num_blocks: int
    ) -> int:
        """Write those of the prompt's first blocks that the device does not have, and let them be found."""
        moves: dict[int, int] = {}
        tokens, num_tokens = payload.prompt_token_ids, num_blocks * model.block_size
        unwritten = blocks.restore(SEQUENCE, range(num_blocks), tokens, num_tokens, moves, payload.owner)
        self._interrupts()
        starts = [(place - image.first) * model.block_bytes for place in unwritten]
        content = memoryview(b"".join(image.content[start : start + model.block_bytes] for start in starts))
        num_bytes = len(unwritten) * model.block_bytes
        self._eviction.write(model.name, [moves[place] for place in unwritten], content, num_bytes)
        blocks.free(SEQUENCE)
        return len(unwritten) * model.block_size


def _end_of(blocks: BlockManager, token_ids: Sequence[int], num_blocks: int, owner: str) -> Prefix:
    """The prefix that so many blocks of a text are."""
    chain, _ = blocks.lookup.chain(token_ids[: num_blocks * blocks.block_size + 1], owner)
    return chain[-1]
