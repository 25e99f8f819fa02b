"""Decode steps are filled up to one of a few sizes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpu_node.executors.cuda.program.graphs.buckets import bucket_of, bucket_sizes


def test_small_sizes_then_multiples_of_eight_and_the_most_there_can_be() -> None:
    assert bucket_sizes(1) == (1,)
    assert bucket_sizes(3) == (1, 2, 3)
    assert bucket_sizes(30) == (1, 2, 4, 8, 16, 24, 30)
    assert bucket_sizes(256)[-3:] == (240, 248, 256)
    assert bucket_sizes(600)[-6:] == (480, 496, 512, 544, 576, 600)
    assert len(bucket_sizes(4096)) == 99


@given(st.integers(1, 4096), st.integers(1, 4096))
def test_every_step_has_a_size_that_is_hardly_larger(max_rows: int, num_rows: int) -> None:
    sizes = bucket_sizes(max_rows)
    assert list(sizes) == sorted(set(sizes))
    size = bucket_of(num_rows, sizes)
    if num_rows > max_rows:
        assert size is None
    else:
        assert size is not None
        assert 0 <= size - num_rows < max(8, num_rows // 16)
