"""Objects read in parts: several at a time, and handed on in order, so that what was written is all that has come."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from cli.errors import CliError
from cli.models.buckets.bucket_objects import MAX_CONNECTIONS, BucketObject, ModelBucket

PART_BYTES = 8 << 20
"""`MAX_CONNECTIONS` of them are in memory, and one more."""
NUM_ATTEMPTS = 5
"""Of a part whose connection breaks off; each goes on behind what has come."""
FIRST_WAIT_S = 0.1
"""Before the second attempt; twice as long before each further one."""
_READ_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class ObjectPart:
    """Bytes of an object that are asked for together; none of an object that is empty, or there already."""

    whole: BucketObject
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PartContent:
    """A part that has come."""

    part: ObjectPart
    content: bytes
    facts: Mapping[str, Any]
    """What the storage said of the whole object, where this is all of it."""


def parts_of(whole: BucketObject, start: int) -> Iterator[ObjectPart]:
    """What is still to come of an object of which ``start`` bytes are there; one part at least."""
    yield ObjectPart(whole, start, min(start + PART_BYTES, whole.num_bytes))
    for place in range(start + PART_BYTES, whole.num_bytes, PART_BYTES):
        yield ObjectPart(whole, place, min(place + PART_BYTES, whole.num_bytes))


class PartReader:
    """Reads parts of one bucket; ``show_bytes`` is told how many have come, by several threads."""

    def __init__(self, bucket: ModelBucket, show_bytes: Callable[[int], None]) -> None:
        self._bucket = bucket
        self._show_bytes = show_bytes
        self._is_stopped = threading.Event()

    def in_order(self, parts: Iterable[ObjectPart]) -> Generator[PartContent]:
        """``parts`` in their order; no more than `MAX_CONNECTIONS` are on their way or wait for those before them."""
        waiting: deque[Future[PartContent]] = deque()
        with ThreadPoolExecutor(MAX_CONNECTIONS) as pool:
            try:
                for part in parts:
                    if len(waiting) == MAX_CONNECTIONS:
                        yield waiting.popleft().result()
                    waiting.append(pool.submit(self._read, part))
                while waiting:
                    yield waiting.popleft().result()
            finally:
                self._is_stopped.set()
                pool.shutdown(cancel_futures=True)

    def _read(self, part: ObjectPart) -> PartContent:
        from botocore.exceptions import FlexibleChecksumError, HTTPClientError, IncompleteReadError

        address = f"s3://{self._bucket.model.bucket}/{part.whole.key}"
        content = bytearray()
        facts: Mapping[str, Any] = {}
        for attempt in range(NUM_ATTEMPTS):
            if part.start + len(content) == part.end or self._is_stopped.is_set():
                break
            try:
                facts = self._read_on(part, content)
            except (HTTPClientError, IncompleteReadError) as error:
                if attempt == NUM_ATTEMPTS - 1:
                    raise CliError(
                        f"{address} broke off {NUM_ATTEMPTS} times ({type(error).__name__}); pull again, and it goes on"
                    ) from error
                self._is_stopped.wait(FIRST_WAIT_S * 2**attempt)
            except FlexibleChecksumError as error:
                raise CliError(f"{address} came damaged: its checksum is another; pull again") from error
        return PartContent(part, bytes(content), facts)

    def _read_on(self, part: ObjectPart, content: bytearray) -> Mapping[str, Any]:
        """Append what follows ``content``, as far as it comes."""
        answer = self._bucket.open(part.whole, part.start + len(content), part.end)
        with closing(answer["Body"]) as body:
            for chunk in body.iter_chunks(_READ_BYTES):
                if self._is_stopped.is_set():
                    break
                content += chunk
                self._show_bytes(len(chunk))
        return answer
