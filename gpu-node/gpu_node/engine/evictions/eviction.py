"""Requests that gave way to more urgent ones: their KV goes to host memory, to another engine, and back to a device.

(Request eviction of QLM, SoCC'24, §5: state and KV are kept, so that the work is not done twice.)
"""

from __future__ import annotations

import logging

from gpu_node.engine.border.executor import BlocksStayError, Executor
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import Restore
from gpu_node.engine.evictions.parking_lot import ParkingLot
from gpu_node.engine.measures.counts import Counts, TierCounts
from gpu_node.engine.measures.throughput import Throughput
from gpu_node.engine.requests.image import ImageError, RequestImage, RequestState
from gpu_node.engine.steps.scheduler import Scheduler
from shared.bus.streams import MAX_IMAGE_BYTES
from shared.messages.payload import Payload

log = logging.getLogger(__name__)


class Eviction:
    """Moves the KV of requests between one device and host memory; who is moved, and when, others say."""

    def __init__(self, executor: Executor, capacity_bytes: int) -> None:
        self._executor = executor
        self._lot = ParkingLot(capacity_bytes)
        self._moves = Throughput()
        self.counts = Counts()
        """Of requests that leave and come; what schedulers see of them, these count."""

    @property
    def kv_bytes_per_s(self) -> float:
        """Measured over moves in both directions; 0.0 before the first."""
        return self._moves.per_s

    @property
    def num_bytes(self) -> int:
        """Host memory that is kept for evicted requests."""
        return self._lot.num_bytes

    def state(self, request_id: str) -> RequestState | None:
        """What is kept of a request; None where nothing is."""
        return self._lot.state(request_id)

    def keep(self, scheduler: Scheduler, model: LoadedModel, request_id: str) -> int:
        """Keep what a request has computed, and take it out of its scheduler; the tokens whose KV is kept.

        0 where nothing is computed, or host memory has no room for it: then nothing is kept at all. No step may be in
        flight.
        """
        state = self._lot.state(request_id)
        if state is None:
            state = self._copy(scheduler, model, request_id)
        scheduler.abort(request_id)
        return state.kv_tokens if state is not None else 0

    def _copy(self, scheduler: Scheduler, model: LoadedModel, request_id: str) -> RequestState | None:
        held = scheduler.held_state(request_id)
        if held is None:
            return None
        if not self._lot.has_room(held.state.num_bytes):
            self._count(TierCounts(num_refused=1))
            return None
        try:
            content, duration_s = self._executor.read_blocks(model.name, held.blocks, swapped_out=held.is_swapped_out)
        except BlocksStayError as error:
            log.warning("KV of request %s not kept: %s", request_id, error)
            return None
        if not held.is_swapped_out:
            self._moves.observe(held.state.num_bytes, duration_s)
            self._count(TierCounts(out_bytes=held.state.num_bytes))
        self._lot.put(RequestImage(held.state, content))
        return held.state

    def resume(self, payload: Payload, model: LoadedModel, image: bytes) -> RequestState | None:
        """The state that an attempt goes on from: what is kept of it here, else what ``image`` brings, if anything.

        None where it has to run from its payload. What is kept of an older attempt is dropped.
        """
        state = self._find(payload, model, image)
        if state is None and (payload.outputs or image):
            self.counts += Counts(num_recomputed=1)
        return state

    def _find(self, payload: Payload, model: LoadedModel, image: bytes) -> RequestState | None:
        state = self._lot.state(payload.request_id)
        if state is not None and not state.refusal(payload, model):
            return state
        self.drop(payload.request_id)
        if not image:
            return None
        from gpu_node.engine.evictions.image_codec import decode_image  # only who moves images needs its packages

        try:
            return self._accept(payload, model, decode_image(image))
        except ImageError as error:
            log.warning("image of request %s, attempt %d, not used: %s", payload.request_id, payload.attempt, error)
            return None

    def _accept(self, payload: Payload, model: LoadedModel, image: RequestImage) -> RequestState:
        error = image.state.refusal(payload, model)
        if error:
            raise ImageError(error)
        if not self._lot.put(image):
            self._count(TierCounts(num_refused=1))
            raise ImageError(f"evicted_kv_bytes has no room for its {image.state.num_bytes} bytes")
        return image.state

    def write_back(self, model: LoadedModel, restores: tuple[Restore, ...]) -> None:
        """Write what a plan restores, ahead of its step; the images are gone then."""
        for restore in restores:
            image = self._lot.take(restore.request_id)
            assert image is not None, "an image is kept until it is restored"
            if restore.blocks:
                duration_s = self._executor.write_blocks(model.name, restore.blocks, image.part(restore.places))
                num_bytes = len(restore.blocks) * model.block_bytes
                self._moves.observe(num_bytes, duration_s)
                self._count(TierCounts(in_bytes=num_bytes))

    def hand_over(self, request_id: str) -> bytes | None:
        """The serialised image of a request that is not here any more; ``b""`` where it is larger than a frame may be.

        None where nothing is kept.
        """
        image = self._lot.take(request_id)
        if image is None:
            return None
        from gpu_node.engine.evictions.image_codec import encode_image  # as above

        data = encode_image(image) if image.state.num_bytes <= MAX_IMAGE_BYTES else b""
        return data if len(data) <= MAX_IMAGE_BYTES else b""

    def drop(self, request_id: str) -> None:
        """Forget a request; unknown ones are ignored."""
        self._lot.take(request_id)

    def clear(self) -> None:
        """Forget all requests."""
        self._lot.clear()

    def check(self) -> None:
        """Assert that the books balance."""
        self._lot.check()

    def _count(self, evicted: TierCounts) -> None:
        self.counts += Counts(evicted=evicted)
