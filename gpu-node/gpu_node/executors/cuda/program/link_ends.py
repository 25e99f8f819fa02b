"""What sends, gathers and polls of programs are about by now: links come and go while models stay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpu_node.kernels.triton.attention.remote_ring import RemoteRing
from gpu_node.kernels.triton.attention.task_ring import Tasks


def nothing() -> None:
    """What a device does beside one that waits, where both run by themselves."""


@dataclass(slots=True)
class Serving:
    """Of a device: what others ask of it. Launches that are captured know what there is at that time."""

    tasks: Tasks | None = None
    meanwhile: Callable[[], object] = nothing
    """Ahead of whatever waits for another device: where kernels are interpreted, one of the same process does its part
    then."""


@dataclass(slots=True)
class AskedDevice:
    """Of a model's program: the device that it asks. Likewise."""

    ring: RemoteRing | None = None
