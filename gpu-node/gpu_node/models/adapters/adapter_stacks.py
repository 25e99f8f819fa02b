"""All adapters of a model: by weight, their matrices one behind the other, as kernels take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpu_node.graph.stack_names import adapted, shrinks
from gpu_node.models.adapters.adapter_file import AdapterFile
from gpu_node.models.tensors.arrays import Float32s


@dataclass(frozen=True)
class AdapterStacks:
    """An adapter that leaves a weight alone, or has a lower rank than another, has zeros there."""

    files: Sequence[AdapterFile]
    """In the order in which the configuration names the adapters."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the adapters."""
        return tuple(file.name for file in self.files)

    @property
    def ranks(self) -> Mapping[str, int]:
        """Of each weight that any of them changes, by canonical name, the largest."""
        ranks: dict[str, int] = {}
        for file in self.files:
            for weight, one in file.weights.items():
                ranks[weight] = max(ranks.get(weight, 0), one.rank)
        return ranks

    def read(self, stack: str) -> Float32s:
        """A stack by its name (`gpu_node.graph.stack_names`), float32."""
        weight = adapted(stack)
        shrinking = stack == shrinks(weight)
        rank = self.ranks[weight]
        parts: list[Float32s | None] = [self._part(file, weight, shrinking) for file in self.files]
        size = next(part.shape[int(shrinking)] for part in parts if part is not None)
        shape = (len(parts), rank, size) if shrinking else (len(parts), size, rank)
        values = np.zeros(shape, dtype=np.float32)
        for place, part in zip(values, parts, strict=True):
            if part is not None:
                place[: part.shape[0], : part.shape[1]] = part
        return values

    def _part(self, file: AdapterFile, weight: str, shrinking: bool) -> Float32s | None:
        if weight not in file.weights:
            return None
        return file.shrink(weight) if shrinking else file.expand(weight)
