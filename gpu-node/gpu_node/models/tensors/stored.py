"""How model files hold one weight: a tensor of its own, a part of a joined one, or several that are stacked.

Without tensors: the command line asks here what a file should hold. `stored_weight` makes the weight.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stored:
    """Where a weight lies, and what is to be done to the tensors that lie there."""

    names: tuple[str, ...]
    """Tensors; in directories, without the family's prefix."""
    stacked: bool = False
    """Each of the tensors is one row of the weight's first dimension; otherwise there is one tensor."""
    transposed: bool = False
    """Stored as [inputs, outputs]."""
    part: int = 0
    num_parts: int = 1
    """The stored tensor holds so many weights side by side along its outputs; this is number ``part``."""
    num_skipped_rows: int = 0
    """Rows at the beginning that do not belong to the weight."""

    def shape(self, weight: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of each stored tensor for a weight of shape ``weight``."""
        if self.stacked:
            weight = weight[1:]
        outputs, *inputs = weight
        shape = (outputs * self.num_parts + self.num_skipped_rows, *inputs)
        return tuple(reversed(shape)) if self.transposed else shape
