"""How many tokens an image is to a model: formulas by family, over sizes that its files give. Never too few.

Each counts what the model reads in the place of the one token that stands for an image, with what is written around it
there. The node's processor says exactly; a node refuses a prompt of which more was found than counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

MAX_ASPECT = 200  # Qwen's own limit, for all: a stripe shows nothing that a model could see

_MAX_TILED_EDGE = 4096  # of Idefics, whatever its files say

CountTokens = Callable[[int, int], int]
"""Of an image by width and height in pixels."""


@dataclass(frozen=True, slots=True)
class FixedTokens:
    """Every image is scaled to one size: LLaVA, Gemma 3."""

    num_tokens: int

    def __call__(self, width: int, height: int) -> int:
        """The same for all."""
        del width, height
        return self.num_tokens


@dataclass(frozen=True, slots=True)
class NativeTokens:
    """Scaled to whole patches, within bounds of pixels: Qwen2-VL (arXiv:2409.12191, section 2.1) and what came of it.

    As ``smart_resize`` of `transformers`.
    """

    patch: int
    """Pixels a side of what becomes one token."""
    min_pixels: int
    max_pixels: int

    def __call__(self, width: int, height: int) -> int:
        """Patches of the scaled image."""
        rows, columns = self._patches(height), self._patches(width)
        num_pixels = rows * columns * self.patch**2
        if num_pixels > self.max_pixels:
            scale = math.sqrt(width * height / self.max_pixels)
            rows = max(1, math.floor(height / scale / self.patch))
            columns = max(1, math.floor(width / scale / self.patch))
        elif num_pixels < self.min_pixels:
            scale = math.sqrt(self.min_pixels / (width * height))
            rows, columns = math.ceil(height * scale / self.patch), math.ceil(width * scale / self.patch)
        return rows * columns

    def _patches(self, length: int) -> int:
        return round(length / self.patch)


@dataclass(frozen=True, slots=True)
class RowTokens:
    """Scaled down to a longest edge, in patches, a mark behind each row: Pixtral (arXiv:2410.07073, section 2)."""

    patch: int
    longest_edge: int

    def __call__(self, width: int, height: int) -> int:
        """Patches and marks."""
        ratio = max(width, height) / self.longest_edge
        if ratio > 1:
            width, height = max(1, math.floor(width / ratio)), max(1, math.floor(height / ratio))
        rows, columns = math.ceil(height / self.patch), math.ceil(width / self.patch)
        return rows * (columns + 1)


@dataclass(frozen=True, slots=True)
class TiledTokens:
    """Scaled to a longest edge, cut into tiles, and once more as a whole: Idefics 3 (arXiv:2408.12637, section 3.2).

    Around each tile stand marks, behind each row of tiles a line's end.
    """

    tile: int
    """Pixels a side."""
    longest_edge: int
    tile_tokens: int
    is_split: bool = True

    def __call__(self, width: int, height: int) -> int:
        """Tokens of all tiles, of the whole, and of what stands around them."""
        whole = self.tile_tokens + 3
        rows, columns = self._tiles(width, height) if self.is_split else (1, 1)
        if rows * columns == 1:
            return whole
        return whole + rows * (columns * (self.tile_tokens + 2) + 1) + 1

    def _tiles(self, width: int, height: int) -> tuple[int, int]:
        """Rows and columns of the scaled image, in that processor's own steps: they round."""
        height, width = _scaled(height, width, self.longest_edge)
        height, width = (height + height % 2, width) if width >= height else (height, width + width % 2)
        height, width = max(height, 1), max(width, 1)
        if max(height, width) > _MAX_TILED_EDGE:
            height, width = _scaled(height, width, _MAX_TILED_EDGE)
        return max(1, math.ceil(height / self.tile)), max(1, math.ceil(width / self.tile))


def _scaled(height: int, width: int, longest: int) -> tuple[int, int]:
    aspect = width / height
    return (int(longest / aspect), longest) if width >= height else (longest, int(longest * aspect))
