"""Blocks as they are written to an SSD, for a process that is killed as it writes: to import it takes no tensors."""

from __future__ import annotations

from gpu_node.engine.memory.prefix import Chains
from gpu_node.engine.tiers.record import HEADER_BYTES, encode, header_of

CONTENT_BYTES = 6000
SLOT_BYTES = 3 * HEADER_BYTES


def pieces(number: int) -> list[memoryview]:
    """What is written of a block whose tokens are all ``number``."""
    cache = Chains()
    content = memoryview(bytes([number]) * CONTENT_BYTES)
    return [memoryview(encode(header_of(cache.extend(cache.root, (number,) * 4), number, [content]))), content]
