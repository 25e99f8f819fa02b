"""The sizes of steps: steps of a few sizes are captured once each, and every other is filled up to the next."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

SMALL_SIZES = (1, 2, 4)
SPACING_ROWS = 8
MAX_FILLING = 16
"""From here times `SPACING_ROWS` on, sizes lie a part of so much of themselves apart, so that they stay few."""
SMALL_MIXED_SIZES = (16, 32, 64)
PRODUCT_ROWS = 128
"""That a product takes at a time, so that fewer take as long."""
MAX_FINE_ROWS = 2048
"""From here on, sizes lie a quarter of it apart."""


def bucket_sizes(max_rows: int) -> tuple[int, ...]:
    """Rows of the steps that are captured, ascending: 1, 2, 4, multiples of 8, and the most that there can be."""
    sizes = [size for size in SMALL_SIZES if size < max_rows]
    size = SPACING_ROWS
    while size < max_rows:
        sizes.append(size)
        power = 1 << (size.bit_length() - 1)
        size += max(SPACING_ROWS, power // MAX_FILLING)
    return (*sizes, max_rows)


def row_sizes(max_rows: int) -> tuple[int, ...]:
    """Rows of the mixed steps that are captured, ascending: powers of two, then multiples of what products take."""
    sizes = [size for size in SMALL_MIXED_SIZES if size < max_rows]
    size = PRODUCT_ROWS
    while size < max_rows:
        sizes.append(size)
        size += PRODUCT_ROWS if size < MAX_FINE_ROWS else MAX_FINE_ROWS // 4
    return (*sizes, max_rows)


def bucket_of(num_rows: int, sizes: Sequence[int]) -> int | None:
    """The smallest of ``sizes`` (ascending) that has room; None if none has."""
    place = bisect_left(sizes, num_rows)
    return sizes[place] if place < len(sizes) else None
