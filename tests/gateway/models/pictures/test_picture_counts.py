"""Tokens of images by family: values from models' own processors, and bounds that hold for any size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway.models.pictures.picture_counts import (
    MAX_ASPECT,
    CountTokens,
    FixedTokens,
    NativeTokens,
    RowTokens,
    TiledTokens,
)

QWEN = NativeTokens(28, 56 * 56, 28 * 28 * 1280)
PIXTRAL = RowTokens(16, 1024)
SMOLVLM = TiledTokens(512, 2048, 64)
SIZES = st.integers(1, 8192)


@pytest.mark.parametrize(
    ("count", "size", "num_tokens"),
    [
        (FixedTokens(576), (9, 3000), 576),
        (QWEN, (28, 28), 4),  # scaled up to 56 by 56
        (QWEN, (280, 560), 200),
        (QWEN, (4000, 3000), 41 * 30),  # scaled down to 1,280 patches at most
        (PIXTRAL, (16, 16), 2),
        (PIXTRAL, (1024, 512), 32 * 65),
        (PIXTRAL, (2048, 1024), 32 * 65),
        (TiledTokens(32, 64, 4), (48, 40), 7 + 2 * (2 * 6 + 1) + 1),
        (TiledTokens(32, 64, 4, is_split=False), (48, 40), 7),
        (TiledTokens(32, 32, 4), (48, 40), 7),  # one tile is the whole
    ],
)
def test_counts(count: CountTokens, size: tuple[int, int], num_tokens: int) -> None:
    assert count(*size) == num_tokens


@given(width=SIZES, height=SIZES)
def test_an_image_of_any_size_is_at_least_a_token_and_at_most_what_its_family_has(width: int, height: int) -> None:
    assert 1 <= QWEN(width, height) <= 1280 or max(width, height) > 200 * min(width, height)
    assert 2 <= PIXTRAL(width, height) <= 64 * 65
    assert 67 <= SMOLVLM(width, height) <= 67 + 16 * 66 + 5


@pytest.mark.slow
def test_counts_are_those_of_the_models_own_processors() -> None:
    """As far as these can be had without torchvision; beside an Idefics's last line's end, which may be a token."""
    from transformers.image_utils import ChannelDimension
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
    from transformers.models.pixtral.image_processing_pil_pixtral import get_resize_output_image_size
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    tiles = Idefics3ImageProcessorPil(size={"longest_edge": 2048}, max_image_size={"longest_edge": 512})

    @settings(max_examples=1000)
    @given(width=SIZES, height=SIZES)
    def check(width: int, height: int) -> None:
        assume(max(width, height) <= MAX_ASPECT * min(width, height))
        _, rows, columns = tiles.get_number_of_image_patches(height, width, {})
        assert SMOLVLM(width, height) == 67 + bool(rows) + rows * (columns * 66 + 1)
        image = np.broadcast_to(np.zeros((1, 1, 3), np.uint8), (height, width, 3))
        high, wide = get_resize_output_image_size(image, (1024, 1024), (16, 16), ChannelDimension.LAST)
        assert PIXTRAL(width, height) == high // 16 * (wide // 16 + 1)
        high, wide = smart_resize(height, width, 28, 56 * 56, 28 * 28 * 1280)
        assert QWEN(width, height) == high * wide // 28**2

    check()
