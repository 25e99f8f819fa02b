"""Host memory for the images of evicted requests, bounded by bytes."""

from __future__ import annotations

from gpu_node.engine.requests.image import RequestImage, RequestState


class ParkingLot:
    """One image a request at most. Nothing is thrown away for a newcomer: without room, the newcomer is not taken.

    An image stays until its blocks are on a device again, or nobody wants it any more. One that is given to another
    engine counts until it is there, or its time is over (`release`).
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._images: dict[str, RequestImage] = {}
        self._given: dict[int, int] = {}
        """By number, bytes of images that were given away and are not released."""
        self._num_given = 0
        self.num_bytes = 0
        """Of all images, those that were given away included."""

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._images

    def has_room(self, num_bytes: int) -> bool:
        """Whether an image of so many bytes would be taken."""
        return self.num_bytes + num_bytes <= self._capacity_bytes

    def put(self, image: RequestImage) -> bool:
        """Keep an image; False without room. The request has none here."""
        state = image.state
        assert state.request_id not in self._images
        if not self.has_room(state.num_bytes):
            return False
        self._images[state.request_id] = image
        self.num_bytes += state.num_bytes
        return True

    def state(self, request_id: str) -> RequestState | None:
        """What is known of a request that is kept here."""
        image = self._images.get(request_id)
        return None if image is None else image.state

    def take(self, request_id: str) -> RequestImage | None:
        """Give an image away; None if there is none."""
        image = self._images.pop(request_id, None)
        if image is not None:
            self.num_bytes -= image.state.num_bytes
        return image

    def give(self, request_id: str) -> tuple[int, RequestImage] | None:
        """Give an image to another engine, under a number; None if there is none. Its bytes count until `release`."""
        image = self._images.pop(request_id, None)
        if image is None:
            return None
        self._num_given += 1
        self._given[self._num_given] = image.state.num_bytes
        return self._num_given, image

    def lend(self, num_bytes: int) -> int | None:
        """Room for a copy of what no request has left here, under a number until `release`; None without room."""
        if not self.has_room(num_bytes):
            return None
        self._num_given += 1
        self._given[self._num_given] = num_bytes
        self.num_bytes += num_bytes
        return self._num_given

    def release(self, number: int) -> None:
        """The memory of an image that was given away is free; unknown ones are ignored."""
        self.num_bytes -= self._given.pop(number, 0)

    def clear(self) -> None:
        """Forget all images but those that were given away."""
        self._images.clear()
        self.num_bytes = sum(self._given.values())

    def check(self) -> None:
        """Assert that the bytes are counted and bounded."""
        num_kept = sum(image.state.num_bytes for image in self._images.values())
        assert self.num_bytes == num_kept + sum(self._given.values()) <= self._capacity_bytes
