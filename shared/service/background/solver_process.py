"""A worker of slow decisions: ``python -m shared.service.background.solver_process MODULE:FUNCTION``, started by a
service's `Solver`.

Problems come over its standard input, answers go over its standard output, each behind its length. It ends with the
service, in the midst of a problem too: its input ends then. Whatever it or a library says goes to standard error.
"""

from __future__ import annotations

import importlib
import os
import queue
import signal
import socket
import struct
import sys
import threading
import traceback
from typing import BinaryIO

from shared.messages.codec import decode, encode
from shared.messages.message import Message
from shared.messages.nodes.placement import PlacementProblem, PlanSolver, Solved
from shared.telemetry.telemetry import configure_logging

HEADER = struct.Struct("!BI")
"""Before each frame: its kind, and its length in bytes."""
PROBLEM, PLAN, FAILURE = range(3)
MAX_FRAME_BYTES = 1 << 30  # far more than any problem; a length above it is no length


def name_of(solve: PlanSolver) -> str:
    """How a worker finds a function: it must stand in a module."""
    return f"{solve.__module__}:{solve.__qualname__}"


def framed(kind: int, data: bytes) -> bytes:
    """A frame as it is sent."""
    return HEADER.pack(kind, len(data)) + data


def main() -> None:
    """Solve until the input ends."""
    configure_logging("solver", socket.gethostname())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of the group: the service says when
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    problems: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(sys.stdin.buffer, problems), daemon=True).start()
    module, _, name = sys.argv[1].partition(":")
    solve: PlanSolver = getattr(importlib.import_module(module), name)
    while True:
        answers.write(_answer(solve, problems.get()))
        answers.flush()


def _receive(source: BinaryIO, problems: queue.SimpleQueue[bytes]) -> None:
    while len(header := source.read(HEADER.size)) == HEADER.size:
        _, num_bytes = HEADER.unpack(header)
        problems.put(source.read(num_bytes))
    os._exit(0)  # the service has ended, and with it the reader of an answer


def _answer(solve: PlanSolver, problem: bytes) -> bytes:
    try:
        message: Message = decode(problem)
        assert isinstance(message, PlacementProblem)
        return framed(PLAN, encode(Solved(plan=solve(message))))
    except Exception:  # the service tells of it, and goes on with the plan that it has
        return framed(FAILURE, traceback.format_exc().encode())


if __name__ == "__main__":
    main()
