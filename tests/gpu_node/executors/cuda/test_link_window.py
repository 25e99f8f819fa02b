"""A window is what was agreed on, of this user alone, or it is refused in one line; what it holds both ends see."""

from __future__ import annotations

import multiprocessing
import os
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from gpu_node.engine.border.links import LinkName, LinkRefusedError
from gpu_node.executors.cuda.executor import CudaExecutor
from gpu_node.executors.cuda.links.ring_memory import ring_bytes
from gpu_node.executors.cuda.links.window import CLOSED, LinkWindow
from gpu_node.graph.passes.named import offload_passes
from gpu_node.kernels.link_file import LinkError, link_path
from gpu_node.kernels.triton.launch import INTERPRETED
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.memory.link_sizes import LinkSizes

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="a device's memory is opened by another process")

LINK, OTHER = LinkName("hot-1", "cold-1"), LinkName("hot-1", "cold-2")
SIZES = LinkSizes(2, 4, 4, 2, 8, num_slots=2, max_rows=3, max_sequences=3, max_blocks=15)
CPU = torch.device("cpu")


def make(folder: Path, link: LinkName = LINK, dtype: torch.dtype = torch.float32) -> LinkWindow:
    return LinkWindow.make(folder, link, SIZES, dtype, CPU)


def open_window(folder: Path, sizes: LinkSizes = SIZES) -> LinkWindow:
    return LinkWindow.open(folder, LINK, sizes, torch.float32, CPU)


def other_format(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"treadle cuda 0")


def other_sizes(path: Path) -> None:
    made_of(path, sizes=replace(SIZES, block_size=8))


def other_type(path: Path) -> None:
    made_of(path, dtype=torch.bfloat16)


def other_sender(path: Path) -> None:
    path.unlink()
    make(path.parent, LinkName("hot-2", "cold-1")).close()
    path.with_name(path.name.replace("hot-1", "hot-2")).rename(path)


def made_of(path: Path, sizes: LinkSizes = SIZES, dtype: torch.dtype = torch.float32) -> None:
    path.unlink()
    LinkWindow.make(path.parent, LINK, sizes, dtype, CPU).close()


def opened_before(path: Path) -> None:
    open_window(path.parent).close()


def shorter(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def of_a_cpu_device(path: Path) -> None:
    os.truncate(path, 64)


def readable(path: Path) -> None:
    path.chmod(0o644)


def gone(path: Path) -> None:
    path.unlink()


BAD: dict[Callable[[Path], None], str] = {
    other_format: "a link's file has another format",
    other_sizes: "a link has other sizes than were agreed on",
    other_type: "its keys and values are torch.bfloat16, and those here torch.float32",
    other_sender: "a link is of another sender",
    opened_before: "a link was open before",
    shorter: r"a link's file has \d+ bytes, and what was agreed on takes \d+",
    of_a_cpu_device: "a link's file has another format",
    readable: r"it is not a file of user \d+ that no other user may read \(user \d+, mode 644\)",
    gone: "No such file or directory",
}


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__)
def test_what_was_not_agreed_on_is_refused_in_one_line(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    with closing(make(tmp_path)):
        path = link_path(tmp_path, LINK.sender, LINK.receiver)
        spoil(path)
        with pytest.raises(LinkError, match=f"^no link {re.escape(str(path))}: {BAD[spoil]}$"):
            open_window(tmp_path)


def test_both_ends_see_one_memory_and_its_name_is_taken_away(tmp_path: Path) -> None:
    with closing(make(tmp_path)) as ours, closing(open_window(tmp_path)) as theirs:
        ours.hide()
        assert list(tmp_path.iterdir()) == []
        assert (ours.generation, theirs.accepted) == (1, 0)
        theirs.page_lines = 40
        theirs.accept(theirs.generation)
        assert (ours.accepted, ours.page_lines) == (1, 40)
        ours.next_generation()
        assert theirs.generation == 2
        theirs.accept(CLOSED)
        assert ours.accepted == CLOSED
        ring, seen = ours.ring.ring, theirs.ring.ring
        ring.q.copy_(torch.randn(ring.q.shape))
        ring.block_lines[1, 2, 4] = 7
        ours.ring.asked.fill_(3)
        assert seen.q.equal(ring.q)
        assert int(seen.block_lines[1, 2, 4]) == 7
        assert (int(theirs.ring.asked), int(theirs.ring.served)) == (3, 0)


def test_a_sender_knows_whether_a_receiver_of_another_process_maps_the_memory(tmp_path: Path) -> None:
    ours, theirs = multiprocessing.Pipe()

    def receive() -> None:
        window = open_window(tmp_path)
        theirs.send(window.generation)
        theirs.recv()

    with closing(make(tmp_path)) as window:
        assert not window.is_mapped_elsewhere
        process = multiprocessing.get_context("fork").Process(target=receive, daemon=True)
        process.start()
        assert ours.recv() == 1
        assert window.is_mapped_elsewhere
        process.kill()
        process.join(30.0)
        assert not window.is_mapped_elsewhere


def test_pieces_of_a_ring_lie_apart(tmp_path: Path) -> None:
    with closing(make(tmp_path)) as window:
        ring, memory = window.ring.ring, window.ring
        pieces = [memory.asked, memory.served, memory.refused]
        pieces += [one for name in ring.__slots__ if isinstance(one := getattr(ring, name), torch.Tensor)]
        spans = sorted((one.data_ptr(), one.data_ptr() + one.nbytes) for one in pieces)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
        assert all(begin % 256 == 0 for begin, _ in spans)
        assert spans[-1][1] - spans[0][0] <= ring_bytes(SIZES, torch.float32)


def test_a_link_that_cannot_be_is_refused_and_the_device_goes_on(tiny_path: Path, tmp_path: Path) -> None:
    def executor(**options: object) -> CudaExecutor:
        chosen = EngineOptions(**{"kv_cache_bytes": 4 << 20, "block_size": 4, "offload": "on"} | options)  # type: ignore[arg-type]
        return CudaExecutor(
            chosen, CPU, dtype=torch.float32, passes=offload_passes(chosen.offload), link_folder=tmp_path
        )

    hot, cold, off = executor(), executor(), executor(offload="off")
    spec = ModelSpec(name="tiny", source=str(tiny_path), max_model_len=32)
    hot.load_model(spec)
    sizes = hot.links.send(LINK, "tiny", 4, 32)
    with pytest.raises(LinkRefusedError, match="no link hot-1 to cold-2: model 'tiny' has one already"):
        hot.links.send(OTHER, "tiny", 4, 32)
    with pytest.raises(LinkRefusedError, match="no model was loaded here, so there is no memory to lend"):
        cold.links.receive(LINK, sizes)
    with pytest.raises(LinkRefusedError, match=r"engine\.offload is off at this node"):
        off.links.receive(LINK, sizes)
    cold.load_model(spec)
    assert hot.links.served_generation(LINK) == 0
    cold.links.receive(LINK, sizes)
    assert hot.links.served_generation(LINK) == 1
    with pytest.raises(LinkRefusedError, match="serves one sender at a time, hot-1 to cold-1"):
        cold.links.receive(OTHER, sizes)
    for one in (cold, hot, off):
        one.close()
    assert list(tmp_path.glob("treadle-link-*")) == []
