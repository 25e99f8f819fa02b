"""What goes through vLLM with a request whose tokens Treadle draws itself."""

from __future__ import annotations

from dataclasses import replace

from gpu_node.vllm.inside.draw_state import extra_args, state_of
from gpu_node.vllm.words.border import CoreRequest, OwnDraw

REQUEST = CoreRequest(
    core_id="0",
    token_ids=[5, 6, 7, 8],
    max_tokens=4,
    stop_token_ids=[2],
    priority=0,
    temperature=0.5,
    top_k=3,
    top_p=0.9,
    min_p=0.1,
    presence_penalty=1.0,
    frequency_penalty=0.5,
    repetition_penalty=1.25,
    logit_bias=[(9, -1.0)],
    num_top=None,
    own_draw=OwnDraw(seed=7, choice=1, num_prompt_tokens=3),
)


def test_all_that_a_draw_hangs_on_arrives_and_earlier_output_is_output_again() -> None:
    drawn: list[int] = []
    state = state_of(extra_args(REQUEST), REQUEST.token_ids, drawn)
    assert state is not None
    drawn.append(10)
    assert (state.prompt_token_ids, state.output_token_ids) == ([5, 6, 7], [8, 10])
    sampling = state.sampling
    assert (sampling.seed, state.choice, sampling.temperature, sampling.top_k) == (7, 1, 0.5, 3)
    assert (sampling.top_p, sampling.min_p, sampling.logit_bias) == (0.9, 0.1, [(9, -1.0)])
    assert (sampling.presence_penalty, sampling.frequency_penalty, sampling.repetition_penalty) == (1.0, 0.5, 1.25)


def test_where_vllm_draws_nothing_goes_along() -> None:
    assert extra_args(replace(REQUEST, own_draw=None)) is None
    assert state_of(None, [5], []) is None
    assert state_of({"other": 1}, [5], []) is None
