"""Blocks of quantised numbers that the library reads: bit by bit what the gguf package makes of them."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from gpu_node.kernels.cpu.library.blocks import read_blocks

READ = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
NUM_BLOCKS = 3_000
"""So many that a scale is subnormal, infinite and no number, too."""


@pytest.mark.parametrize("name", READ)
@pytest.mark.filterwarnings("ignore:.*encountered in.*:RuntimeWarning")  # as such scales are
def test_every_number_is_the_packages(name: str) -> None:
    kind = GGMLQuantizationType[name]
    block_numbers, block_bytes = GGML_QUANT_SIZES[kind]
    blocks = np.random.default_rng(7).integers(0, 256, (NUM_BLOCKS, block_bytes), dtype=np.uint8)
    values = np.full((NUM_BLOCKS, block_numbers), 7.0, dtype=np.float32)

    assert read_blocks(kind, blocks, values)

    expected = dequantize(blocks, kind)
    assert np.isnan(expected).any()
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("kind", [kind for kind in GGMLQuantizationType if kind.name not in READ], ids=str)
def test_other_types_are_left_to_the_package(kind: GGMLQuantizationType) -> None:
    block_numbers, block_bytes = GGML_QUANT_SIZES[kind]
    values = np.full((2, block_numbers), 7.0, dtype=np.float32)

    assert not read_blocks(kind, np.zeros((2, block_bytes), dtype=np.uint8), values)
    assert (values == 7.0).all()
