"""How many wake-ups a sleeping reader misses, of writers that send two in a row. Runs in vLLM's environment."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import zmq

from gpu_node.vllm.inside.waiting import wait_asleep
from gpu_node.vllm.words.vllm_names import SpinCondition

NUM_PAIRS = 100
MISSED_MS = 500
BEHIND_THE_LAST_S = 0.005
"""So that a writer has looked in between, and its first wake-up goes out."""


def missed() -> int:
    """Of twice `NUM_PAIRS`."""
    num_missed = 0
    with TemporaryDirectory() as folder, zmq.Context() as here, zmq.Context() as there:
        address = f"ipc://{Path(folder) / 'wake-ups'}"
        writer = SpinCondition(is_reader=False, context=here, notify_address=address)
        reader = SpinCondition(is_reader=True, context=there, notify_address=address)
        while not _is_woken(writer, reader):  # until it is heard
            pass
        for _ in range(NUM_PAIRS):
            time.sleep(BEHIND_THE_LAST_S)
            num_missed += not _is_woken(writer, reader)
            num_missed += not _is_woken(writer, reader)
        for socket in (writer.local_notify_socket, reader.local_notify_socket):
            socket.close(linger=0)
        for socket in (reader.read_cancel_socket, reader.write_cancel_socket):
            socket.close(linger=0)
    return num_missed


def _is_woken(writer: SpinCondition, reader: SpinCondition) -> bool:
    writer.notify()
    began_s = time.monotonic()
    reader.wait(timeout_ms=MISSED_MS)
    return time.monotonic() - began_s < MISSED_MS / 1000


if __name__ == "__main__":
    wait_asleep()
    sys.stdout.write(f"{missed()}\n")
