"""A process that must not outlive the one that started it, whatever it is doing when that dies."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that the kernel sends where the parent has ended."""


def end_with(parent_pid: int) -> None:
    """Let the kernel end this process with ``parent_pid``, which started it; at once where that is gone already.

    A rank that waits on its device for a sum, or is stopped, reads no socket: it would keep the device's memory, which
    the engine that is started next needs.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)
