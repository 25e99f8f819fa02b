"""Host memory for the images of evicted requests, bounded by bytes."""

from __future__ import annotations

from gpu_node.engine.requests.image import RequestImage, RequestState


class ParkingLot:
    """One image a request at most. Nothing is thrown away for a newcomer: without room, the newcomer is not taken.

    An image stays until its blocks are on a device again, or it is not wanted any more. One that is given to another
    engine counts until it is there, or its time is over (`release`).
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._images: dict[str, RequestImage] = {}
        self._given: dict[int, int] = {}
        """By number, bytes of images that were given away and are not released."""
        self._num_given = 0
        self._begun: dict[str, int] = {}
        """By request that is kept, the number under which others have read the beginning of its image already."""
        self.ended: list[int] = []
        """Such numbers of which nothing more comes, to be told to the readers; cleared by the teller."""
        self.num_bytes = 0
        """Of all images, those that were given away included."""

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._images

    def has_room(self, num_bytes: int, number: int = 0) -> bool:
        """Whether an image of so many bytes would be taken, in the place of what is lent under ``number``."""
        return self.num_bytes - self._given.get(number, 0) + num_bytes <= self._capacity_bytes

    def put(self, image: RequestImage, number: int = 0) -> bool:
        """Keep an image; False without room. The request has none here. ``number``: as which it has been begun."""
        state = image.state
        assert state.request_id not in self._images
        if not self.has_room(state.num_bytes, number):
            return False
        self.release(number)
        self._images[state.request_id] = image
        if number:
            self._begun[state.request_id] = number
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
            if request_id in self._begun:
                self.ended.append(self._begun.pop(request_id))
        return image

    def give(self, request_id: str) -> tuple[int, RequestImage] | None:
        """Give an image to another engine, under a number; None if there is none. Its bytes count until `release`."""
        image = self._images.pop(request_id, None)
        if image is None:
            return None
        number = self._begun.pop(request_id, 0)
        if not number:
            self._num_given += 1
            number = self._num_given
        self._given[number] = image.state.num_bytes
        return number, image

    def lend(self, num_bytes: int) -> int | None:
        """Room for what no request has left here (yet), under a number until `release`; None without room."""
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
        self.ended += self._begun.values()
        self._begun.clear()
        self.num_bytes = sum(self._given.values())

    def check(self) -> None:
        """Assert that the bytes are counted and bounded."""
        assert self._begun.keys() <= self._images.keys(), "what is kept has a number of its own"
        assert not self._given.keys() & set(self._begun.values()), "room is counted once"
        num_kept = sum(image.state.num_bytes for image in self._images.values())
        assert self.num_bytes == num_kept + sum(self._given.values()) <= self._capacity_bytes
