"""The operations of programs: typed entries (`operations`) with their reference, and the kernels of devices."""

from typing import Any

_ANGLES = frozenset({"rope_angles", "scaled_rope_angles"})


def __getattr__(name: str) -> Any:
    """Of `operations`, what CUDA devices call here; torch, which it needs, is not for all who come by."""
    if name not in _ANGLES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gpu_node.kernels import operations

    return getattr(operations, name)
