"""Parts of objects on their way: several at a time, no more than there are connections for, and in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from threading import Barrier
from typing import Any, cast

import pytest

from cli.models.buckets.bucket_objects import MAX_CONNECTIONS, BucketObject, ModelBucket
from cli.models.buckets.bucket_parts import PART_BYTES, ObjectPart, PartReader, parts_of
from cli.models.source import BucketModel

WHOLE = BucketObject("m.gguf", "m.gguf", 40 * PART_BYTES, "etag")
WAIT_S = 60.0


class Body:
    """Of two bytes, that say which part this is."""

    def __init__(self, number: int) -> None:
        self._number = number

    def iter_chunks(self, _: int) -> Iterator[bytes]:
        yield self._number.to_bytes(2)

    def close(self) -> None:
        """Nothing is open."""


class Storage:
    """Answers when as many as there are connections for have asked."""

    def __init__(self, num_together: int) -> None:
        self.model = BucketModel("models", "m.gguf")
        self.asked: list[int] = []
        self._all_there = Barrier(num_together)

    def open(self, one: BucketObject, start: int, end: int) -> Mapping[str, Any]:
        number = start // PART_BYTES
        self.asked.append(number)
        self._all_there.wait(WAIT_S)
        return {"Body": Body(number)}


def short_parts(number: int) -> list[ObjectPart]:
    return [ObjectPart(WHOLE, place * PART_BYTES, place * PART_BYTES + 2) for place in range(number)]


def test_parts_come_together_and_in_order_and_never_more_than_there_are_connections_for() -> None:
    storage = Storage(MAX_CONNECTIONS)
    shown: list[int] = []
    reader = PartReader(cast("ModelBucket", storage), shown.append)
    came = []
    for content in reader.in_order(short_parts(5 * MAX_CONNECTIONS)):
        came.append(int.from_bytes(content.content))
        assert max(storage.asked) < len(came) + MAX_CONNECTIONS
    assert came == list(range(5 * MAX_CONNECTIONS))
    assert shown == [2] * len(came)


def test_who_stops_asks_for_nothing_more() -> None:
    storage = Storage(1)
    contents = PartReader(cast("ModelBucket", storage), lambda _: None).in_order(short_parts(40))
    next(contents)
    contents.close()
    assert max(storage.asked) <= MAX_CONNECTIONS


@pytest.mark.parametrize(
    ("num_bytes", "there", "ranges"),
    [
        (0, 0, [(0, 0)]),
        (5, 0, [(0, 5)]),
        (5, 5, [(5, 5)]),
        (PART_BYTES, 0, [(0, PART_BYTES)]),
        (PART_BYTES + 1, 0, [(0, PART_BYTES), (PART_BYTES, PART_BYTES + 1)]),
        (PART_BYTES + 1, 3, [(3, PART_BYTES + 1)]),
        (PART_BYTES + 4, 3, [(3, PART_BYTES + 3), (PART_BYTES + 3, PART_BYTES + 4)]),
    ],
)
def test_parts_begin_behind_what_is_there(num_bytes: int, there: int, ranges: list[tuple[int, int]]) -> None:
    whole = BucketObject("m.gguf", "m.gguf", num_bytes, "etag")
    assert [(part.start, part.end) for part in parts_of(whole, there)] == ranges
