"""Images of evicted requests in host memory: kept here, or brought by another engine; given away, or gone on from."""

from __future__ import annotations

import logging

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.evictions.parking_lot import ParkingLot
from gpu_node.engine.measures.counts import Counts, TierCounts
from gpu_node.engine.requests.image import HandedOver, ImageError, RequestImage, RequestState, SerialisedImage
from shared.messages.requests.payload import Payload

log = logging.getLogger(__name__)


class ImageStore:
    """Of one engine, whatever computes there."""

    def __init__(self, capacity_bytes: int) -> None:
        self.lot = ParkingLot(capacity_bytes)
        self.counts = Counts()
        """Of requests that leave and come; what schedulers see of them, these count."""

    def find(self, payload: Payload, model: LoadedModel, image: SerialisedImage | None) -> RequestState | None:
        """The state that an attempt goes on from: what is kept of it here, else what ``image`` brings.

        None where there is neither: it runs from its payload. What is kept of an older attempt is dropped. `ImageError`
        where an image was handed over and cannot be used: its tokens are not in the payload.
        """
        state = self.lot.state(payload.request_id)
        if state is not None and not state.refusal(payload, model):
            return state
        self.drop(payload.request_id)
        if image is None:
            self.counts += Counts(num_recomputed=int(bool(payload.outputs)))
            return None
        from gpu_node.engine.evictions.image_codec import decode_image  # only moving images needs its packages

        try:
            return self._accept(payload, model, decode_image(image))
        except ImageError as error:
            log.warning("image of request %s, attempt %d, not used: %s", payload.request_id, payload.attempt, error)
            raise

    def _accept(self, payload: Payload, model: LoadedModel, image: RequestImage) -> RequestState:
        error = image.state.refusal(payload, model)
        if error:
            raise ImageError(error)
        if not self.lot.put(image):
            self.count(TierCounts(num_refused=1))
            raise ImageError(f"evicted_kv_bytes has no room for its {image.state.num_bytes} bytes")
        return image.state

    def hand_over(self, request_id: str) -> HandedOver | None:
        """The serialised image of a request that is not here any more; None where nothing is kept."""
        given = self.lot.give(request_id)
        if given is None:
            return None
        from gpu_node.engine.evictions.image_codec import image_pieces  # as above

        number, image = given
        return HandedOver(request_id, image.state.attempt, number, image_pieces(image), image.state.num_bytes)

    def drop(self, request_id: str) -> None:
        """Forget a request; unknown ones are ignored."""
        self.lot.take(request_id)

    def count(self, evicted: TierCounts) -> None:
        """Of what moves to and from host memory."""
        self.counts += Counts(evicted=evicted)
