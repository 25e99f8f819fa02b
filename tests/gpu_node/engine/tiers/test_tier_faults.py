"""Whatever becomes of the SSD, each request gets its tokens, no step waits, and what went wrong is counted and said."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from gpu_node.engine.memory.prefix import Chains
from gpu_node.engine.memory.tiers.ssd_index import Slot
from gpu_node.engine.tiers.disk import PAGE_BYTES, DirectDisk, SystemDisk, disk_of
from gpu_node.engine.tiers.record import HEADER_BYTES, DamagedError, check, decode
from gpu_node.engine.tiers.ssd_folder import FolderError, SsdFolder
from shared.config.engines.tiers import TierOptions
from tests.gpu_node.engine.tiers.conversations import NUM_TURNS, NUM_USERS, engine, host_ssd, make_model
from tests.gpu_node.engine.tiers.slots import CONTENT_BYTES, SLOT_BYTES

pytestmark = pytest.mark.slow

Answers = list[list[list[int]]]
LAST = range(NUM_TURNS - 1, NUM_TURNS)


class FailingDisk(SystemDisk):
    """Fails as it is told to."""

    def __init__(self, write: int = 0, read: int = 0) -> None:
        self.write_errno, self.read_errno = write, read

    def write(self, fd: int, pieces: Sequence[memoryview], offset: int) -> int:
        if self.write_errno:
            raise OSError(self.write_errno, os.strerror(self.write_errno))
        return super().write(fd, pieces, offset)

    def read(self, fd: int, pieces: Sequence[memoryview], offset: int) -> int:
        if self.read_errno:
            raise OSError(self.read_errno, os.strerror(self.read_errno))
        return super().read(fd, pieces, offset)


class StuckDisk(SystemDisk):
    """Reads blocks only when it is let."""

    def __init__(self) -> None:
        self.may_read = Event()

    def read(self, fd: int, pieces: Sequence[memoryview], offset: int) -> int:
        if len(pieces) > 1:  # a block, and not a header alone
            self.may_read.wait()
        return super().read(fd, pieces, offset)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"), "cpu")


@pytest.fixture(scope="module")
def plain(path: Path) -> Answers:
    with engine(path, "cpu") as kept:
        return kept.play()


@pytest.fixture
def written(path: Path, tmp_path: Path) -> tuple[Path, list[list[int]]]:
    """A folder with all histories but the last turn's, and these."""
    with engine(path, "cpu", host_ssd(tmp_path)) as kept:
        kept.play(range(NUM_TURNS - 1))
    return tmp_path, kept.histories


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_writes_that_fail_leave_no_block_and_are_said_once(
    path: Path, plain: Answers, tmp_path: Path, caplog: pytest.LogCaptureFixture, reason: int
) -> None:
    with engine(path, "cpu", host_ssd(tmp_path), FailingDisk(write=reason)) as kept:
        assert kept.play() == plain
        assert kept.store is not None
        assert kept.store.num_blocks == 0
        counts = kept.engine.counts.kept
    assert (counts.num_written, counts.num_failed > 0, counts.host_tokens > 0) == (0, True, True)
    assert [record.message for record in caplog.records if os.strerror(reason) in record.message] != []
    assert sum("is not kept" in record.message for record in caplog.records) == 1


def test_a_full_file_system_is_a_write_that_fails(path: Path, plain: Answers, tmp_path: Path) -> None:
    with engine(path, "cpu", host_ssd(tmp_path)) as kept:
        assert kept.store is not None
        (tmp_path / "node").joinpath(f"segment-0-{_slot_bytes(kept.engine.model)}.kv").symlink_to("/dev/full")
        assert kept.play() == plain
        counts = kept.engine.counts.kept
    assert counts.num_failed > 0


def test_a_folder_that_goes_is_survived(path: Path, plain: Answers, tmp_path: Path) -> None:
    with engine(path, "cpu", host_ssd(tmp_path, host_bytes=1 << 20)) as kept:
        answers = kept.play(range(2))
        shutil.rmtree(tmp_path / "node")
        answers += kept.play(range(2, NUM_TURNS))
        assert answers == plain


@pytest.mark.parametrize("at", [100, HEADER_BYTES + 1000], ids=["header", "content"])
def test_changed_bits_are_misses(
    path: Path, plain: Answers, written: tuple[Path, list[list[int]]], caplog: pytest.LogCaptureFixture, at: int
) -> None:
    folder, histories = written
    num_blocks = 0
    for file in (folder / "node").glob("segment-*"):
        slot_bytes = int(file.stem.rpartition("-")[2])
        data = bytearray(file.read_bytes())
        for first in range(0, len(data), slot_bytes):
            data[first + at] ^= 1
            num_blocks += 1
        file.write_bytes(data)
    with engine(path, "cpu", host_ssd(folder)) as kept:
        kept.histories = histories
        assert kept.store is not None
        kept.store.settle()
        assert kept.store.num_blocks == (0 if at < HEADER_BYTES else num_blocks)
        assert kept.play(LAST) == plain[-1:]
        counts = kept.engine.counts.kept
    assert counts.store_tokens == 0
    if at >= HEADER_BYTES:
        assert counts.num_damaged > 0
        assert any("was not what had been written" in record.message for record in caplog.records)


def test_reads_that_fail_are_misses(path: Path, plain: Answers, written: tuple[Path, list[list[int]]]) -> None:
    folder, histories = written
    disk = FailingDisk()
    with engine(path, "cpu", host_ssd(folder), disk) as kept:
        kept.histories = histories
        assert kept.store is not None
        kept.store.settle()
        disk.read_errno = errno.EIO
        assert kept.play(LAST) == plain[-1:]
        counts = kept.engine.counts.kept
    assert (counts.store_tokens, counts.num_failed > 0) == (0, True)


def test_another_models_folder_has_nothing_for_this_one(
    path: Path, plain: Answers, written: tuple[Path, list[list[int]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, histories = written
    other = make_model(tmp_path_factory.mktemp("other"), "cpu", inner_size=96)
    with engine(other, "cpu") as kept:
        kept.histories = [list(history) for history in histories]
        expected = kept.play(LAST)
    assert expected != plain[-1:]
    with engine(other, "cpu", host_ssd(folder)) as kept:
        kept.histories = [list(history) for history in histories]
        assert kept.store is not None
        kept.store.settle()
        assert kept.store.num_blocks > 0
        assert kept.play(LAST) == expected
        assert kept.engine.counts.kept.store_tokens == 0


def test_a_smaller_budget_deletes_files_that_are_too_long_for_it(path: Path, plain: Answers, tmp_path: Path) -> None:
    """Budgets below 2 GiB are cut into shorter files: what lay behind their ends was no slot of any segment."""
    for ssd_bytes in (8 << 20, 1 << 20):
        with engine(path, "cpu", replace(host_ssd(tmp_path, host_bytes=1 << 18), ssd_bytes=ssd_bytes)) as kept:
            assert kept.store is not None
            kept.store.settle()
            assert kept.play() == plain
            kept.store.check()
        lengths = [file.stat().st_size for file in (tmp_path / "node").glob("segment-*")]
        assert 0 < max(lengths) <= ssd_bytes // 8


def test_nobody_waits_long_for_a_slow_disk(path: Path, plain: Answers, written: tuple[Path, list[list[int]]]) -> None:
    folder, histories = written
    disk = StuckDisk()
    with engine(path, "cpu", host_ssd(folder), disk) as kept:
        kept.histories = histories
        assert kept.store is not None
        kept.store.settle()
        assert kept.play(LAST, settles=False) == plain[-1:]
        counts = kept.engine.counts.kept
        disk.may_read.set()
    assert (counts.num_late, counts.store_tokens, counts.num_read) == (1, 0, 0)  # the others did not wait at all
    assert NUM_USERS > 1


def test_host_memory_without_room_for_a_block_keeps_nothing(path: Path, plain: Answers, tmp_path: Path) -> None:
    for tiers in (TierOptions(host_bytes=1), host_ssd(tmp_path, host_bytes=1)):
        with engine(path, "cpu", tiers) as kept:
            assert kept.play() == plain
            counts = kept.engine.counts
        assert (counts.kept.host_tokens, counts.kept.store_tokens, counts.kept.num_lost_blocks > 0) == (0, 0, True)


def test_a_folder_has_one_owner(tmp_path: Path) -> None:
    folder = SsdFolder(tmp_path)
    with pytest.raises(FolderError, match=r"is used by another process; give each cluster .* a folder of its own"):
        SsdFolder(tmp_path)
    folder.close()
    SsdFolder(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match=r"cannot be used .*; name a folder that this node may write to"):
        SsdFolder(tmp_path / "file")


_WRITER = """
import os, signal, sys
from pathlib import Path
from gpu_node.engine.memory.tiers.ssd_index import Slot
from gpu_node.engine.tiers.disk import SystemDisk
from gpu_node.engine.tiers.ssd_folder import SsdFolder
from tests.gpu_node.engine.tiers.slots import SLOT_BYTES, pieces

class Killed(SystemDisk):
    def write(self, fd, pieces, offset):
        if offset == 2 * SLOT_BYTES:  # in the midst of the third block
            os.pwrite(fd, b"".join(pieces)[: int(sys.argv[2])], offset)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().write(fd, pieces, offset)

folder = SsdFolder(Path(sys.argv[1]), Killed())
for number in range(3):
    folder.write(Slot(0, number, SLOT_BYTES), pieces(number))
"""


@pytest.mark.parametrize("num_bytes", [1, HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + CONTENT_BYTES - 1])
def test_a_kill_in_a_write_leaves_a_miss(tmp_path: Path, num_bytes: int) -> None:
    command = [sys.executable, "-c", _WRITER, str(tmp_path), str(num_bytes)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    folder = SsdFolder(tmp_path)
    assert folder.segments() == [(0, SLOT_BYTES)]
    slots = [slot for _, _, slot in folder.headers(0, SLOT_BYTES)]
    assert slots[:2] == [Slot(0, 0, SLOT_BYTES), Slot(0, 1, SLOT_BYTES)]
    assert len(slots) == (3 if num_bytes >= HEADER_BYTES else 2)
    cache = Chains()
    for slot in slots:
        header, content = bytearray(HEADER_BYTES), bytearray(CONTENT_BYTES)
        folder.read(slot, [memoryview(header), memoryview(content)])
        prefix = cache.extend(cache.root, (slot.number,) * 4)
        if slot.number < 2:
            check(decode(bytes(header)), prefix, [memoryview(content)])
            assert content == bytes([slot.number]) * CONTENT_BYTES
        else:
            with pytest.raises(DamagedError):
                check(decode(bytes(header)), prefix, [memoryview(content)])
    folder.close()


def _slot_bytes(model: object) -> int:
    from gpu_node.engine.border.model import LoadedModel
    from gpu_node.engine.tiers.record import slot_bytes

    assert isinstance(model, LoadedModel)
    return slot_bytes(model.block_bytes)


def paged(num_bytes: int, fill: int) -> memoryview:
    """Memory that begins at a page."""
    pages = memoryview(mmap.mmap(-1, num_bytes))
    pages[:] = bytes([fill]) * num_bytes
    return pages


@pytest.mark.parametrize(
    "sizes",
    [
        [4096],
        [4096, 8192],  # as a header and a block are
        [4096, 6000],
        [4096, 100, 8092, 4096],
        [1, 2, 3],
        [4096, 4096, 4096 + 512],
    ],
    ids=str,
)
@pytest.mark.parametrize("begins_at_page", [True, False])
def test_what_one_disk_writes_the_other_reads(tmp_path: Path, sizes: list[int], begins_at_page: bool) -> None:
    """Past the page cache and through it, whatever the pieces are; of a file that ends before, less comes."""
    skipped = 0 if begins_at_page else 512
    pieces = [paged(size + skipped, number + 1)[skipped:] for number, size in enumerate(sizes)]
    expected = b"".join(pieces)
    for write, read in ((DirectDisk(), SystemDisk()), (SystemDisk(), DirectDisk()), (DirectDisk(), DirectDisk())):
        file = tmp_path / "file"
        for disk in (write, read):
            fd = os.open(file, os.O_RDWR | os.O_CREAT | disk.open_flags)
            try:
                if disk is write:
                    assert disk.write(fd, pieces, PAGE_BYTES) == len(expected)
                for num_bytes in (len(expected), len(expected) // 2) if disk is read else ():
                    found = [paged(size + skipped, 0)[skipped:] for size in sizes]
                    assert disk.read(fd, found, PAGE_BYTES) == num_bytes
                    assert b"".join(found)[:num_bytes] == expected[:num_bytes]
                    os.truncate(file, PAGE_BYTES + num_bytes // 2)
            finally:
                os.close(fd)
        file.unlink()


def test_a_file_system_without_direct_io_is_used_through_the_page_cache(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert isinstance(disk_of(tmp_path / "file"), DirectDisk)
    assert isinstance(disk_of(Path("/proc/self/oom_score_adj")), SystemDisk)
