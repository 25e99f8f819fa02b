"""Which place an adapter gets that waits for one."""

from __future__ import annotations

import pytest

from gpu_node.vllm.inside.adapter_turns import NONE, closing, tokens_left


def test_an_adapter_has_its_place_as_long_as_the_last_of_its_requests() -> None:
    assert tokens_left([(1, 5), (NONE, 99), (2, 30), (1, 40)]) == {1: 40, 2: 30}
    assert tokens_left([(NONE, 99)]) == {}


@pytest.mark.parametrize(
    ("left", "num_places", "given_up"),
    [({}, 1, NONE), ({1: 40}, 2, NONE), ({1: 40, 2: 30}, 2, 2), ({3: 30, 2: 30}, 2, 2), ({1: 40}, 1, 1)],
)
def test_the_adapter_that_is_through_first_gives_up_its_place_where_none_is_free(
    left: dict[int, int], num_places: int, given_up: int
) -> None:
    assert closing(left, num_places) == given_up
