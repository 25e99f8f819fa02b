"""A weight from the tensors that model files hold it in: torch's or numpy's, whichever is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self, TypeVar

from gpu_node.models.tensors.stored import Stored


class _Tensor(Protocol):
    """What both have."""

    @property
    def T(self) -> Self: ...  # noqa: N802 - its name there

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> Any: ...


T = TypeVar("T", bound=_Tensor)


def weight_of(stored: Stored, tensors: Sequence[T], stack: Callable[[list[T]], T]) -> T:
    """The weight, a view where it can be, of the tensors that it names, each of the shape that `Stored.shape` says.

    ``stack`` puts tensors beside one another along a new first dimension.
    """
    if stored.stacked:
        return stack(list(tensors))
    values = tensors[0].T if stored.transposed else tensors[0]
    num_rows = len(values) // stored.num_parts
    part: T = values[stored.part * num_rows + stored.num_skipped_rows : (stored.part + 1) * num_rows]
    return part
