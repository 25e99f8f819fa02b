"""What is expected of a request, by hand: blocks of 4 tokens, 64 tokens at most."""

from __future__ import annotations

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.steps.admission.typical_request import TypicalRequest

MODEL = LoadedModel("m", 100, 4, 1, 64, 256, frozenset())


def test_as_long_as_nothing_is_known_a_request_is_as_long_as_it_may_be() -> None:
    typical = TypicalRequest(MODEL)
    assert typical.num_blocks == 16
    assert typical.growth(num_tokens=10, num_prompt_tokens=8, max_len=30) == 19  # the 30th is never computed


def test_before_the_first_end_outputs_use_their_limit() -> None:
    typical = TypicalRequest(MODEL)
    typical.on_arrival(num_prompt_tokens=6, max_len=19)
    typical.on_arrival(num_prompt_tokens=10, max_len=15)
    assert typical.num_blocks == (8 + (12 + 4) // 2) // 4


def test_ends_tell_how_long_outputs_are() -> None:
    typical = TypicalRequest(MODEL)
    typical.on_arrival(num_prompt_tokens=8, max_len=60)
    typical.on_finish(5)
    typical.on_finish(8)
    assert typical.mean_output_tokens(default=0.0) == 6.5
    assert typical.num_blocks == 4  # 8 + 6.5 tokens, to the even number
    assert typical.growth(num_tokens=12, num_prompt_tokens=8, max_len=60) == 3  # 2.5 are left of 6.5
    assert typical.growth(num_tokens=12, num_prompt_tokens=8, max_len=14) == 1
    assert typical.growth(num_tokens=20, num_prompt_tokens=8, max_len=60) == 7  # it has outlived the mean
