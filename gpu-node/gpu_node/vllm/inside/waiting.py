"""How a core of vLLM and its workers wait for each other where processors compute."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import zmq

from gpu_node.vllm.words.vllm_names import SpinCondition

PARAMETERS = ["self", "is_reader", "context", "notify_address", "busy_loop_s"]
WAKE_UPS = 1000
"""That a writer may have sent and no reader has taken off yet; a reader keeps the last alone."""


@functools.cache
def wait_asleep() -> None:
    """From now on, in this process and its copies, a thread that waits for a message sleeps until it comes.

    vLLM looks for it in a loop until nothing has come for a second, which spares a device some tenths of a millisecond
    a step. Where the step is computed by processors, the loop of the core takes one from its workers all the while.

    A sleeper depends on being woken. vLLM's writers have room for one wake-up that is on its way, and ZeroMQ looks only
    once in three million ticks of the processor, about a millisecond, whether it has gone: of two messages in that
    time the second wakes no reader. Its reader would sleep until it looks by itself, five seconds later; vLLM's own
    loop hides that. So there is more room here.
    """
    begin = SpinCondition.__init__
    assert list(inspect.signature(begin).parameters) == PARAMETERS, "vLLM waits in yet another way"

    def begin_asleep(self: Any, is_reader: bool, context: Any, notify_address: str, busy_loop_s: float = 0.0) -> None:
        begin(self, is_reader, _RoomyContext(context), notify_address, busy_loop_s)

    SpinCondition.__init__ = begin_asleep


class _RoomyContext:
    """A context whose sockets send without losing wake-ups."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def socket(self, kind: int) -> Any:
        """A new one."""
        return self._context.socket(kind, socket_class=_RoomySocket)


class _RoomySocket(zmq.Socket):  # type: ignore[misc]
    def setsockopt(self, option: int, value: Any) -> None:
        """Whatever room is asked for."""
        super().setsockopt(option, WAKE_UPS if option == zmq.SNDHWM else value)
