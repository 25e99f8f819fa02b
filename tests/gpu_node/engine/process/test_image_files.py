"""Images leave an engine's process a piece at a time, and come without a copy."""

from __future__ import annotations

import os
from pathlib import Path

from gpu_node.engine.process.commands.commands import told_of
from gpu_node.engine.process.image_files import PIECE_BYTES, ImageFiles
from gpu_node.engine.process.protocol.protocol import NO_IMAGE, EngineEvent, Image, ImageFile, ImageOpened
from gpu_node.engine.requests.image import Growth, HandedOver
from tests.image_files import laid, read


class Told:
    """An engine process that writes images."""

    def __init__(self) -> None:
        self.events: list[EngineEvent] = []
        self.released: list[int] = []
        self.files = ImageFiles(self.events.append, self.released.extend)

    def images(self) -> list[Image]:
        return [event for event in self.events if isinstance(event, Image)]


def handed(number: int, *pieces: bytes) -> HandedOver:
    return HandedOver(f"r{number}", 0, number, tuple(memoryview(piece) for piece in pieces), kv_bytes=0)


def test_an_image_is_told_of_when_it_is_whole_and_one_piece_is_written_at_a_time() -> None:
    told = Told()
    content = os.urandom(PIECE_BYTES + 5)
    told.files.give([handed(1, b"head", content), handed(2, b"small", b"")], told_of)
    told.files.advance()
    assert told.events == []
    told.files.advance()
    assert [(image.request_id, image.number, image.file.num_bytes) for image in told.images()] == [
        ("r1", 1, PIECE_BYTES + 9)
    ]
    assert told.files.is_writing
    told.files.advance()
    assert not told.files.is_writing
    first, second = told.images()
    assert read(first.file) == b"head" + content
    assert read(second.file) == b"small"
    told.files.advance()
    assert len(told.events) == 2


def test_it_stays_open_until_it_is_released() -> None:
    told = Told()
    told.files.give([handed(7, b"head")], told_of)
    told.files.advance()
    (image,) = told.images()
    told.files.release([6])
    assert read(image.file) == b"head"
    told.files.release([7, 7])
    assert not os.path.lexists(image.file.path)


def growth(number: int) -> Growth:
    return Growth(f"r{number}", 0, number, num_bytes=4, most_bytes=64)


def test_an_image_that_grows_is_read_where_it_is_written_and_only_its_end_is_written_when_it_is_whole() -> None:
    told = Told()
    memory = told.files.make(3, 64)
    file = told.files.growing_file(growth(3))
    assert file.num_bytes == 64
    memory[:8] = b"contents"
    assert read(file)[:8] == b"contents"
    memory[8:16] = b" and all"
    assert not told.files.is_writing
    told.files.give([HandedOver("r3", 0, 3, (memory[:16], b", told"), kv_bytes=0)], told_of)
    memory[:16] = b"CONTENTS AND ALL"  # nothing is written there again
    told.files.advance()
    (image,) = told.images()
    assert image.file == ImageFile(file.path, 22)
    with Path(image.file.path).open("rb") as opened:  # the file is longer, where it was taken to become so
        assert opened.read(22) == b"CONTENTS AND ALL, told"
    told.files.release([3])
    assert not os.path.lexists(file.path)
    assert told.files.growing_file(growth(3)) == NO_IMAGE


def test_one_that_ends_before_it_is_whole_is_closed_and_blocks_without_content_make_no_file() -> None:
    told = Told()
    told.files.make(3, 64)
    path = told.files.growing_file(growth(3)).path
    told.files.release([3])
    assert not os.path.lexists(path)
    assert len(told.files.make(4, 0)) == 0
    assert told.files.growing_file(growth(4)) == NO_IMAGE
    told.files.give([handed(4, b"", b"head")], told_of)
    told.files.advance()
    assert [read(image.file) for image in told.images()] == [b"head"]


def test_what_comes_is_read_where_it_lies_and_the_agent_hears_that_it_is_open() -> None:
    told = Told()
    file = laid(b"an image")
    taken = told.files.take(file)
    assert bytes(taken) == b"an image"
    assert told.events == [ImageOpened(file)]
    assert isinstance(taken, memoryview)
    taken[:2] = b"An"
    assert read(file) == b"an image", "who writes there has a copy of his own"


def test_what_is_lost_or_shorter_than_it_said_is_empty() -> None:
    told = Told()
    assert told.files.take(NO_IMAGE) == b""
    gone = ImageFile("/proc/self/fd/99999", 8)
    assert told.files.take(gone) == b""
    short = ImageFile(laid(b"short").path, 8 << 20)
    assert told.files.take(short) == b""
    assert told.events == [ImageOpened(gone), ImageOpened(short)], "of none, nothing is to be closed"
