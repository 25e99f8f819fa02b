"""What stands for CUDA graphs where kernels are interpreted: the very launches, with the very arguments, in a list.

A capture runs nothing, and refuses what would break a CUDA graph on a device: values that go to the host, tensors made
from values of the host, and results at places that a replay would not write. So a replay that gives the right numbers
shows that no launch depends on what the host knew when it was captured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_node.kernels.triton.launch import recording

_aten = torch.ops.aten
_ROOM = {_aten.empty.memory_format, _aten.new_empty.default}
"""Memory without content: in a CUDA graph, from its own pool."""

_FROM_HOST = _aten.lift_fresh.default
"""Makes a tensor of what a list holds now."""


class CaptureError(RuntimeError):
    """An operation that a CUDA graph could not replay."""


@dataclass(frozen=True, slots=True)
class RecordedLaunch:
    """One launch."""

    name: str
    """Of the kernel, or of torch's operation."""
    queue: Callable[[], object]


@dataclass(frozen=True, slots=True)
class StepRecording:
    """Launches in their order."""

    launches: Sequence[RecordedLaunch]

    def replay(self) -> None:
        """Run them again."""
        for launch in self.launches:
            launch.queue()


class RecordedGraphs:
    """Captures by listening to torch and to `gpu_node.kernels.triton.launch`."""

    def capture(self, queue: Callable[[], object]) -> StepRecording:
        """`CaptureError` for what a device could not capture."""
        launches: list[RecordedLaunch] = []
        with recording(lambda name, run: launches.append(RecordedLaunch(name, run))), _Listening(launches):
            queue()
        return StepRecording(tuple(launches))


class _Listening(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes operations that write what they are given, lets those run that only look at it in another way."""

    def __init__(self, launches: list[RecordedLaunch]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._launches = launches

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        if func in _ROOM or (func.is_view and func is not _FROM_HOST):
            return func(*args, **given)
        if not func._schema.is_mutable:
            raise CaptureError(f"{func} within a capture: a replay would not do it again, or not write where this did")
        self._launches.append(RecordedLaunch(func.__name__, partial(func, *args, **given)))
        return given["out"] if "out" in given else args[0]
