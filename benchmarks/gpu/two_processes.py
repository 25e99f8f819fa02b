"""Two processes on one device, linked by memory that both map: blocks and attention of this one lie in the other.

Without MPS a device gives both its time in turns, so what a round trip takes here says nothing of two devices.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter, sleep

import torch
from line import Line

from gpu_node.engine.border.links import LinkName
from gpu_node.engine.border.plan import BlockMove
from gpu_node.executors.cuda.links.receiver import CudaLinkReceiver
from gpu_node.executors.cuda.links.remote_moves import RemoteMoves
from gpu_node.executors.cuda.links.ring_memory import cache_shape
from gpu_node.executors.cuda.links.sender import CudaLinkSender
from gpu_node.executors.cuda.links.window import LinkWindow
from gpu_node.executors.cuda.memory.arena import CudaArena
from gpu_node.executors.cuda.program.link_ends import AskedDevice, Serving, nothing
from gpu_node.kernels.paged_batch import PagedSequence
from gpu_node.kernels.triton.attention.attention import paged_attention
from gpu_node.kernels.triton.attention.gather import gather
from gpu_node.kernels.triton.attention.poll import poll
from gpu_node.kernels.triton.attention.prefill_attention import rows_together
from gpu_node.kernels.triton.attention.remote_ring import RemoteRing, RemoteRows
from gpu_node.kernels.triton.attention.send import send
from gpu_node.kernels.triton.cache import LayerCache, Places, device_batch
from gpu_node.kernels.triton.rope import write_kv
from shared.files.kv_paging import LINE_BYTES, Paging
from shared.messages.memory.link_sizes import LinkSizes

LINK = LinkName("hot", "cold")
SEQUENCES, BLOCKS_EACH = 3, 4
SIZES = LinkSizes(2, 16, 8, 2, 64, num_slots=2, max_rows=SEQUENCES, max_sequences=SEQUENCES, max_blocks=SEQUENCES * 8)
NUM_BLOCKS = SEQUENCES * BLOCKS_EACH
PAGE_BLOCKS = 16
LENT_PAGE = 1
LOOKS = 256
NUM_ROUNDS, NUM_INTERPRETED_ROUNDS = 20, 6
START_S = 60.0


def check_processes(device: torch.device, _: Mapping[str, float], _share: int, _num_shares: int) -> Iterator[Line]:
    """Blocks there and back, attention over them, and what becomes of a receiver that is killed."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    with TemporaryDirectory() as name:
        folder, asking = Path(name), AskedDevice()
        window = LinkWindow.make(folder, LINK, SIZES, dtype, device)
        hot = _Hot(device, dtype)
        sender = CudaLinkSender(window, asking, hot.places.block_lines, _max_looks(device), forget_graphs=nothing)
        with _receiving(folder, device, dtype) as process:
            _wait_for(sender, process)
            ring = asking.ring
            assert ring is not None
            num_wrong = hot.move_there_and_back(ring)
            yield Line("wrong words, blocks there and back", num_wrong, "", at_most=0, is_required=True)
            bound = 1e-2 if dtype == torch.bfloat16 else 1e-5
            began_s = perf_counter()
            num_rounds = NUM_ROUNDS if device.type == "cuda" else NUM_INTERPRETED_ROUNDS
            error = max(hot.ask(ring, number % SIZES.num_layers, number) for number in range(num_rounds))
            yield Line("attention by another process", error, "", at_most=bound, is_required=True)
            yield Line("a round trip between processes in turns", 1e6 * (perf_counter() - began_s) / num_rounds, "us")
            process.send_signal(signal.SIGKILL)
            process.wait()
            hot.ask(ring, 0, num_rounds)
            lost = float(ring.is_lost)
            yield Line("a receiver that was killed is lost", lost, "", at_least=1, is_required=True)
        sender.close().close()


class _Hot:
    """Sequences of single rows, whose contexts lie here and, as copies, there."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        shape = cache_shape(SIZES)
        self._arena = _arena(device, dtype, NUM_BLOCKS, 1)
        self._numbers = self._arena.numbers(dtype)
        self._numbers.copy_(torch.randn(len(self._numbers), device=device))
        lines = shape.block_lines(dtype.itemsize)
        self.places = Places(NUM_BLOCKS * lines, lines)
        self._shape = shape
        self._moves = RemoteMoves(self._arena, self.places, dtype, Serving())
        self._there = [LENT_PAGE * PAGE_BLOCKS + block for block in range(NUM_BLOCKS)]

    def move_there_and_back(self, ring: RemoteRing) -> int:
        """Words that are not as they were."""
        before = self._arena.words.clone()
        moves = [BlockMove(own, there) for own, there in enumerate(self._there)]
        self._moves.send(ring, moves)
        self._arena.words.zero_()
        self._moves.call_back(ring, moves)
        return int((self._arena.words != before).sum())

    def ask(self, ring: RemoteRing, layer: int, number: int) -> float:
        """The relative difference of attention there to attention here, of the next row of each sequence."""
        device, dtype, start = self._numbers.device, self._numbers.dtype, 20 + number
        tables = [list(range(i * BLOCKS_EACH, (i + 1) * BLOCKS_EACH)) for i in range(SEQUENCES)]
        together = rows_together(SIZES.num_heads // SIZES.num_kv_heads)
        sequences = [PagedSequence(start, 1, table) for table in tables]
        batch = device_batch(sequences, SIZES.block_size, self.places, device, rows_together=together)
        cache = LayerCache(self._numbers, self._shape, layer)
        q, out, expected = torch.randn(3, SEQUENCES, SIZES.num_heads * SIZES.head_dim, device=device).to(dtype)
        k, v = torch.randn(2, SEQUENCES, SIZES.num_kv_heads * SIZES.head_dim, device=device).to(dtype)
        there = torch.tensor([self._there[block] for table in tables for block in table], dtype=torch.int32)
        rows = RemoteRows(batch.positions, batch.first_blocks, ring.places.lines(there).to(device))
        send(ring, q, k, v, cache, rows)
        write_kv(k, v, cache, batch)
        paged_attention(q, cache, batch, expected)
        gather(ring, out, None, self._numbers)
        return float((out.float() - expected.float()).norm() / expected.float().norm())


def _arena(device: torch.device, dtype: torch.dtype, page_blocks: int, num_pages: int) -> CudaArena:
    lines = cache_shape(SIZES).block_lines(dtype.itemsize)
    return CudaArena(Paging(num_pages, page_blocks * lines * LINE_BYTES), device)


def _max_looks(device: torch.device) -> int:
    return 2_000_000 if device.type == "cuda" else 10_000


def _wait_for(sender: CudaLinkSender, process: subprocess.Popen[bytes]) -> None:
    end_s = monotonic() + START_S
    while not sender.served_generation():
        if process.poll() is not None or monotonic() > end_s:
            raise RuntimeError("the other process does not open the link")
        sleep(0.01)


@contextmanager
def _receiving(folder: Path, device: torch.device, dtype: torch.dtype) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, __file__, str(folder), device.type, str(dtype).removeprefix("torch.")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def _receive(folder: Path, device: torch.device, dtype: torch.dtype) -> None:
    """Serve until this process is killed, or the one that started it is gone."""
    arena = _arena(device, dtype, PAGE_BLOCKS, LENT_PAGE + 1)
    numbers, window = arena.numbers(dtype), LinkWindow.open(folder, LINK, SIZES, dtype, device)
    looks = LOOKS if device.type == "cuda" else 1
    drain = torch.cuda.synchronize if device.type == "cuda" else nothing
    receiver = CudaLinkReceiver(window, LENT_PAGE + 1, arena.page_lines, device, drain)
    receiver.lend([LENT_PAGE])
    poll(receiver.tasks, numbers, looks)  # compiled before anybody waits for it
    receiver.look()
    parent = os.getppid()
    while os.getppid() == parent:
        poll(receiver.tasks, numbers, looks)
        drain()


if __name__ == "__main__":
    _receive(Path(sys.argv[1]), torch.device(sys.argv[2]), getattr(torch, sys.argv[3]))
