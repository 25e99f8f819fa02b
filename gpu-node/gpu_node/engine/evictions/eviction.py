"""Requests that gave way to more urgent ones: their KV goes to host memory, to another engine, and back to a device.

(Request eviction of QLM, SoCC'24, §5: state and KV are kept, so that the work is not done twice.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from gpu_node.engine.border.executor import BlocksStayError, Executor
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import Restore
from gpu_node.engine.evictions.image_store import ImageStore
from gpu_node.engine.measures.counts import Counts, TierCounts
from gpu_node.engine.measures.throughput import Throughput
from gpu_node.engine.requests.image import BegunImage, HandedOver, RequestImage, RequestState, SerialisedImage
from gpu_node.engine.steps.batch.resumption import HeldState
from gpu_node.engine.steps.scheduler import Scheduler
from shared.messages.requests.payload import Payload

log = logging.getLogger(__name__)


class Eviction:
    """Moves the KV of requests between one device and host memory; which are moved, and when, others say."""

    def __init__(self, executor: Executor, capacity_bytes: int) -> None:
        self._executor = executor
        self._store = ImageStore(capacity_bytes)
        self._moves = Throughput()

    @property
    def counts(self) -> Counts:
        """Of requests that leave and come."""
        return self._store.counts

    @property
    def kv_bytes_per_s(self) -> float:
        """Measured over moves in both directions; 0.0 before the first."""
        return self._moves.per_s

    @property
    def num_bytes(self) -> int:
        """Host memory that is kept for evicted requests."""
        return self._store.lot.num_bytes

    def state(self, request_id: str) -> RequestState | None:
        """What is kept of a request; None where nothing is."""
        return self._store.lot.state(request_id)

    def keep(
        self,
        scheduler: Scheduler,
        model: LoadedModel,
        request_id: str,
        begun: BegunImage | None = None,
        yields: Callable[[], bool] = lambda: False,
    ) -> int:
        """Keep what a request has computed, and take it out of its scheduler; the tokens whose KV is kept.

        0 where nothing is computed, or host memory has no room for it: then nothing is kept at all. No step may be in
        flight. The image goes on from what has ``begun``, where it can; else that has ended. ``yields``: another image
        that grows gives up its room, as long as there is one.
        """
        state = self._store.lot.state(request_id)
        if state is None:
            state = self._copy(scheduler, model, request_id, begun, yields)
        elif begun is not None:
            self.end(begun.number)
        scheduler.abort(request_id)
        return state.kv_tokens if state is not None else 0

    def _copy(
        self,
        scheduler: Scheduler,
        model: LoadedModel,
        request_id: str,
        begun: BegunImage | None,
        yields: Callable[[], bool],
    ) -> RequestState | None:
        held = scheduler.held_state(request_id)
        if begun is not None and (held is None or not _goes_on(held, begun)):
            self.end(begun.number)
            begun = None
        if held is None:
            return None
        number = begun.number if begun is not None else 0
        try:
            while not self._store.lot.has_room(held.state.num_bytes, number):
                if not yields():
                    self._store.count(TierCounts(num_refused=1))
                    return None
            content = self._content(model, held) if begun is None else self._rest(model, held, begun)
            self._store.lot.put(RequestImage(held.state, content), number)
        except BlocksStayError as error:
            log.warning("KV of request %s not kept: %s", request_id, error)
            return None
        finally:
            if begun is not None and request_id not in self._store.lot:
                self.end(number)
        return held.state

    def _rest(self, model: LoadedModel, held: HeldState, begun: BegunImage) -> memoryview:
        """The content of all blocks: what has begun, and behind it what is copied now."""
        blocks = held.device_blocks[begun.num_blocks :]
        if blocks:
            num_bytes = len(blocks) * model.block_bytes
            content = self.read(model.name, blocks, num_bytes)
            begun.write(held.state.format.content_bytes(begun.num_blocks), content)
            self._store.count(TierCounts(out_bytes=num_bytes))
        return begun.memory[: held.state.format.content_bytes(held.state.num_blocks)]

    def _content(self, model: LoadedModel, held: HeldState) -> memoryview:
        """Of its blocks, in their order; only what is on the device has to be moved."""
        parts: list[memoryview] = []
        if held.device_blocks:
            num_bytes = len(held.device_blocks) * model.block_bytes
            parts.append(self.read(model.name, held.device_blocks, num_bytes))
            self._store.count(TierCounts(out_bytes=num_bytes))
        if held.host_blocks:
            parts.append(self._executor.read_blocks(model.name, held.host_blocks, swapped_out=True)[0])
        return parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def resume(self, payload: Payload, model: LoadedModel, image: SerialisedImage | None) -> RequestState | None:
        """The state that an attempt goes on from (`ImageStore.find`)."""
        return self._store.find(payload, model, image)

    def write_back(self, model: LoadedModel, restores: tuple[Restore, ...]) -> None:
        """Write what a plan restores, ahead of its step; the images are gone then."""
        for restore in restores:
            image = self._store.lot.take(restore.request_id)
            assert image is not None, "an image is kept until it is restored"
            if restore.blocks:
                num_bytes = len(restore.blocks) * model.block_bytes
                self.write(model.name, restore.blocks, image.part(restore.places), num_bytes)
                self._store.count(TierCounts(in_bytes=num_bytes))

    # --- of no request ------------------------------------------------------------------------------------------------

    def read(self, model: str, blocks: Sequence[int], num_bytes: int) -> memoryview:
        """Content of blocks of the device, one behind the other; `BlocksStayError`. How long it took is learnt."""
        content, duration_s = self._executor.read_blocks(model, blocks, swapped_out=False)
        self._moves.observe(num_bytes, duration_s)
        return content

    def write(self, model: str, blocks: Sequence[int], content: memoryview, num_bytes: int) -> None:
        """Put content that was read into blocks of the device; likewise."""
        self._moves.observe(num_bytes, self._executor.write_blocks(model, blocks, content))

    def lend(self, num_bytes: int) -> int | None:
        """As `ParkingLot.lend`."""
        return self._store.lot.lend(num_bytes)

    def end(self, number: int) -> None:
        """Nothing more comes of an image that has begun: its room is free, and a node that reads it is to be told."""
        self._store.lot.release(number)
        self._store.lot.ended.append(number)

    def take_ended(self) -> list[int]:
        """Numbers of images that have begun and to which nothing more comes, since it was asked last."""
        ended = self._store.lot.ended
        self._store.lot.ended = []
        return ended

    # --- what is kept goes --------------------------------------------------------------------------------------------

    def hand_over(self, request_id: str) -> HandedOver | None:
        """The image of a request that is not here any more (`ImageStore.hand_over`)."""
        return self._store.hand_over(request_id)

    def release(self, numbers: Iterable[int]) -> None:
        """The memory of images that were handed over is free."""
        for number in numbers:
            self._store.lot.release(number)

    def drop(self, request_id: str) -> None:
        """Forget a request; unknown ones are ignored."""
        self._store.drop(request_id)

    def clear(self) -> None:
        """Forget all requests."""
        self._store.lot.clear()

    def check(self) -> None:
        """Assert that the books balance."""
        self._store.lot.check()


def _goes_on(held: HeldState, begun: BegunImage) -> bool:
    """Whether the blocks that have begun are the first of these, and the others have room behind them."""
    state = held.state
    first = state.sequences[0].num_computed_tokens // state.format.block_size
    has_room = state.format.content_bytes(state.num_blocks) <= len(begun.memory)
    return not held.host_blocks and begun.num_blocks <= first and has_room
