"""A receiver as a process: ``python -m tests.gpu_node.offload.receiver_process FOLDER SENDER RECEIVER NUM_THREADS``.

It opens the link of `Sizes`, lends pages, says ``open`` and computes its own steps until its input ends.
"""

from __future__ import annotations

import select
import sys
from contextlib import closing
from pathlib import Path

from gpu_node.kernels.cpu import CpuLinkReceiver
from tests.gpu_node.offload.attention_engine import AttentionEngine, Grown, Part, Sizes
from tests.gpu_node.offload.pair import COLD, LENT_PAGES, PAGE_BYTES


def main(folder: str, sender: str, receiver: str, num_threads: str) -> None:
    """Serve until the input ends."""
    with closing(AttentionEngine(COLD, int(num_threads), num_idle_operators=20, page_bytes=PAGE_BYTES)) as engine:
        link = CpuLinkReceiver(
            Sizes().link(), sender, receiver, device=engine.device, arena=engine.arena, folder=Path(folder)
        )
        with closing(link):
            link.lend(LENT_PAGES)
            print("open", flush=True)  # noqa: T201
            while not select.select([sys.stdin], [], [], 0.0)[0]:
                engine.run([Part([(Grown((0,)), 8)])])


if __name__ == "__main__":
    main(*sys.argv[1:])
