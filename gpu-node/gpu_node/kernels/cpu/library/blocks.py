"""Blocks of quantised numbers as GGUF files hold them, read by the library: the very numbers of the gguf package."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpu_node.kernels.cpu.library.library import library


def read_blocks(kind: int, blocks: npt.NDArray[np.uint8], values: npt.NDArray[np.float32]) -> bool:
    """Write what blocks [blocks, bytes] of a type stand for into ``values`` [blocks, numbers]; neither has gaps.

    ``kind``: the type's number in the format. False, and nothing is written, for one that the library does not read.
    """
    assert blocks.flags.c_contiguous, "blocks lie as in their file"
    assert values.flags.c_contiguous, "their numbers lie side by side"
    assert len(blocks) == len(values), "a row a block"
    return bool(library().treadle_read_blocks(kind, blocks.ctypes.data, len(blocks), values.ctypes.data))
