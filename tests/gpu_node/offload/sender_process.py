"""A sender as a process: ``python -m tests.gpu_node.offload.sender_process FOLDER``.

It makes the link of `Sizes`, says ``made`` and has all its rows computed there until it is killed.
"""

from __future__ import annotations

import random
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.gpu_node.offload.attention_engine import Sizes
from tests.gpu_node.offload.pair import RIGHT, Pair, sequences
from tests.gpu_node.offload.waiting import wait_until


def main(folder: str) -> None:
    """Ask for ever."""
    with ExitStack() as stack:
        pair = Pair(stack, Path(folder), Sizes())
        print("made", flush=True)  # noqa: T201
        wait_until(lambda: pair.link.is_open)
        chance = random.Random(0)
        while True:
            rows = [(one, 3) for one in sequences(3, chance)]
            assert pair.step([], rows, 0) == RIGHT


if __name__ == "__main__":
    main(*sys.argv[1:])
