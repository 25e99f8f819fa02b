"""A link's file is what was agreed on, of this user alone, or it is refused in one line; none is left behind."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from gpu_node.kernels.cpu import CpuLinkReceiver, CpuLinkSender, CpuLinkShape, LinkError, sweep_links
from gpu_node.kernels.link_file import FOLDER, link_path
from tests.gpu_node.offload.attention_engine import AttentionEngine, Sizes
from tests.gpu_node.offload.link_words import LinkWords

SHAPE = Sizes().link()


def sender(folder: Path, shape: CpuLinkShape = SHAPE, name: str = "hot-1") -> CpuLinkSender:
    return CpuLinkSender(shape, name, "cold-1", deadline_s=1.0, folder=folder)


@pytest.fixture
def cold(stack: ExitStack) -> AttentionEngine:
    return stack.enter_context(closing(AttentionEngine(Sizes())))


def receive(cold: AttentionEngine, folder: Path, shape: CpuLinkShape = SHAPE) -> CpuLinkReceiver:
    return CpuLinkReceiver(shape, "hot-1", "cold-1", device=cold.device, arena=cold.arena, folder=folder)


def other_format(path: Path) -> None:
    LinkWords(path)["format"] = 0


def other_sizes(path: Path) -> None:
    LinkWords(path)["shape"] = 3


def other_sender(path: Path) -> None:
    LinkWords(path)["sender"] = 0x31


def opened_before(path: Path) -> None:
    LinkWords(path)["accepted"] = 1


def shorter(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def readable(path: Path) -> None:
    path.chmod(0o644)


def gone(path: Path) -> None:
    path.unlink()


def elsewhere(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to(path.with_name("real"))


BAD: dict[Callable[[Path], None], str] = {
    other_format: "a link's file has another format",
    other_sizes: "a link has other sizes than were agreed on",
    other_sender: "a link is of another sender",
    opened_before: "a link was open before",
    shorter: r"a link's file has \d+ bytes, and what was agreed on takes \d+",
    readable: r"it is not a file of user \d+ that no other user may read \(user \d+, mode 644\)",
    gone: "No such file or directory",
    elsewhere: "Too many levels of symbolic links",
}


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__)
def test_what_was_not_agreed_on_is_refused_in_one_line(
    cold: AttentionEngine, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    with closing(sender(tmp_path)):
        path = link_path(tmp_path, "hot-1", "cold-1")
        spoil(path)
        with pytest.raises(LinkError, match=f"^no link {re.escape(str(path))}: {BAD[spoil]}$"):
            receive(cold, tmp_path)
    assert cold.device.num_served == 0


def test_a_full_folder_is_told_with_what_is_wanted() -> None:
    heads = (1 << 10, 1 << 10, 64)
    huge = CpuLinkShape(1, 16, *heads, 1 << 10, 1 << 20, 16, 16)
    with pytest.raises(
        LinkError, match=r"^no link /dev/shm/treadle-link-hot-1-to-cold-1: No space .* it takes [\d,]+ bytes"
    ):
        sender(FOLDER, huge)
    assert not link_path(FOLDER, "hot-1", "cold-1").exists()


def test_sizes_that_make_no_link_are_refused(tmp_path: Path) -> None:
    for number, what in ((3, "power of two"), (0, "sizes from 1")):
        heads = (4, 2, 16)
        with pytest.raises(LinkError, match=what):
            sender(tmp_path, CpuLinkShape(1, 16, *heads, number, 4, 4, 4))
    with pytest.raises(LinkError, match="too many heads of a link share a KV head"):
        sender(tmp_path, CpuLinkShape(1, 16, 49, 1, 16, 4, 4, 4, 4))  # a task's room is for 48
    with pytest.raises(LinkError, match="cannot be part of a file's name"):
        sender(tmp_path, name="../hot")
    assert list(tmp_path.iterdir()) == []


def test_a_link_between_two_epochs_is_made_once_and_its_file_goes_with_it(tmp_path: Path) -> None:
    path = link_path(tmp_path, "hot-1", "cold-1")
    with closing(sender(tmp_path)):
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(LinkError, match="File exists"):
            sender(tmp_path)
    assert not path.exists()


def test_a_name_is_taken_away_when_both_have_the_memory(cold: AttentionEngine, tmp_path: Path) -> None:
    with closing(sender(tmp_path)) as link, closing(receive(cold, tmp_path)):
        link.hide()
        assert list(tmp_path.iterdir()) == []
        cold.run([])
        assert link.is_open
        with closing(sender(tmp_path)):
            link.close()
            assert list(tmp_path.iterdir()) == [link_path(tmp_path, "hot-1", "cold-1")]


def test_files_of_dead_makers_are_swept_and_no_others(tmp_path: Path) -> None:
    dead, new = (link_path(tmp_path, name, "cold-1") for name in ("dead", "new"))
    for path in (dead, new):
        path.touch(0o600)
    (tmp_path / "other").touch()
    os.utime(dead, times=(0, 0))
    with closing(sender(tmp_path, name="alive")):
        os.utime(link_path(tmp_path, "alive", "cold-1"), times=(0, 0))
        assert sweep_links(tmp_path) == [dead]
        assert {path.name for path in tmp_path.iterdir()} == {
            "other",
            new.name,
            link_path(tmp_path, "alive", "cold-1").name,
        }
