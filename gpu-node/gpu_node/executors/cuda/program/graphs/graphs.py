"""Launches that are queued once and replayed as a whole: CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch


class Replay(Protocol):
    """What was captured: the very launches, on the very memory."""

    def replay(self) -> None:
        """Queue it behind what was queued before."""
        ...


class Graphs(Protocol):
    """Captures launches of one device."""

    def capture(self, queue: Callable[[], object]) -> Replay:
        """What ``queue`` launches. All that it reads, and all that is looked at behind it, has to stay where it is."""
        ...


class CudaGraphs:
    """CUDA graphs of one model, which take what memory they need beside fixed buffers from one pool.

    That is safe while they are replayed one behind the other and that memory is not read behind them. A pool ends with
    its last graph: another model's graphs need a new one.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def capture(self, queue: Callable[[], object]) -> Replay:
        """Runs it once before: compiling, loading code and making workspaces are not allowed within a capture.

        On the stream of the capture, because libraries have a workspace for each. Other threads, such as the one that
        watches over collectives, may go on meanwhile.
        """
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            queue()
        torch.cuda.current_stream().wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            queue()
        return graph
