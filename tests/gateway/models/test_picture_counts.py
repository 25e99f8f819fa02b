"""Tokens of images by family: values from models' own processors, and bounds that hold for any size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.models.picture_counts import CountTokens, FixedTokens, NativeTokens, RowTokens, TiledTokens

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
        (TiledTokens(32, 64, 4), (48, 40), 7 + 4 * 6 + 4),
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
    assert 67 <= SMOLVLM(width, height) <= 67 + 16 * 66 + 6


@given(width=SIZES, height=SIZES)
def test_a_turned_image_of_tiles_counts_as_much(width: int, height: int) -> None:
    assert SMOLVLM(width, height) == SMOLVLM(height, width)
