"""Memory that another process maps is seen where it lies, and no copy of it."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
import torch

from gpu_node.executors.cuda.memory.mapped_memory import DeviceMapping, HostMapping, tensor_at
from tests.gpu_node.kernels.triton.buffers import DEVICE


def test_a_part_of_a_file_is_seen_by_all_who_map_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(2 * mmap.PAGESIZE))
    with path.open("r+b") as file:
        ours, theirs = (HostMapping(mmap.mmap(file.fileno(), 0), mmap.PAGESIZE, 100) for _ in range(2))
    ours.content[7] = 5
    assert theirs.content.tolist() == [0] * 7 + [5] + [0] * 92
    assert ours.content.data_ptr() % 256 == 0


def test_a_tensor_at_an_address_is_what_lies_there() -> None:
    memory = torch.arange(8, dtype=torch.int64, device=DEVICE)
    seen = tensor_at(memory.data_ptr(), memory.nbytes, memory.device)
    assert (seen.dtype, seen.numel(), seen.device) == (torch.uint8, 64, memory.device)
    seen.view(torch.int64)[3] = 99
    assert memory.tolist() == [0, 1, 2, 99, 4, 5, 6, 7]


@pytest.mark.skipif(DEVICE.type != "cuda", reason="memory of a device; what another process sees is in make gpu-check")
def test_memory_of_a_device_is_made_zeros_and_freed() -> None:
    made = DeviceMapping.make(4096, torch.device("cuda", 0))
    assert len(made.handle) == 64
    assert int(made.content.sum()) == 0
    made.close()
