"""How long an answer may be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.endpoints.call.job_parts import MAX_CANDIDATE_TOKENS, Room, max_tokens, payload_bytes
from gateway.models.models import ServedModel
from gateway.openai.errors.errors import ApiError
from shared.messages.codec import encode
from shared.messages.requests.payload import Constraint, Payload, Sampling

CONTEXT = 1 << 20
RICH = Sampling(  # every field as long as it gets, but for biases
    max_tokens=CONTEXT,
    temperature=0.123456789,
    top_k=1 << 20,
    top_p=0.987654321,
    min_p=0.123456789,
    seed=(1 << 63) - 1,
    stop_token_ids=[1 << 17] * 8,
    presence_penalty=-1.987654321,
    frequency_penalty=-1.987654321,
    repetition_penalty=1.987654321,
    num_logprobs=20,
    num_choices=16,
    num_candidates=16,
    length_penalty=0.123456789,
)
PROMPT = [1] * 10


@pytest.fixture
def model(tiny: ServedModel) -> ServedModel:
    """A model with more context than several candidates may fill together."""
    return replace(tiny, max_model_len=CONTEXT)


@pytest.mark.parametrize(
    ("wanted", "default", "num_candidates", "limit"),
    [
        (None, None, 1, CONTEXT - 10),
        (None, 16, 1, 16),
        (None, 16, 4, 16),
        (None, None, 4, MAX_CANDIDATE_TOKENS // 4),
        (None, None, 16, MAX_CANDIDATE_TOKENS // 16),
        (MAX_CANDIDATE_TOKENS // 4, None, 4, MAX_CANDIDATE_TOKENS // 4),
        (CONTEXT - 10, None, 1, CONTEXT - 10),
    ],
)
def test_several_candidates_are_bounded_together(
    model: ServedModel, wanted: int | None, default: int | None, num_candidates: int, limit: int
) -> None:
    assert max_tokens(model, len(PROMPT), Room(wanted, default, "max_tokens"), "prompt", num_candidates) == limit


def test_without_a_limit_candidates_share_the_context(tiny: ServedModel) -> None:
    room = Room(None, None, "max_tokens")
    assert [max_tokens(tiny, len(PROMPT), room, "prompt", number) for number in (1, 2, 5)] == [54, 27, 10]
    assert max_tokens(tiny, 62, room, "prompt", 5) == 1


def test_candidates_that_are_too_long_together_are_refused(model: ServedModel) -> None:
    with pytest.raises(ApiError, match="4 candidates of 32769 tokens are 131076 tokens") as caught:
        max_tokens(model, len(PROMPT), Room(MAX_CANDIDATE_TOKENS // 4 + 1, None, "max_tokens"), "prompt", 4)
    assert (caught.value.status, caught.value.param) == (400, "max_tokens")


def test_a_context_that_is_too_short_is_said_first(tiny: ServedModel) -> None:
    with pytest.raises(ApiError) as caught:
        max_tokens(tiny, len(PROMPT), Room(MAX_CANDIDATE_TOKENS, None, "max_tokens"), "prompt", 4)
    assert caught.value.code == "context_length_exceeded"


def test_a_constraint_counts_with_each_prompt() -> None:
    constraint = Constraint("regex", "é" * 50_000)
    prompts = [[1]] * 3
    payloads = [
        Payload("r" * 35, 0, "g" * 80, "m" * 64, prompt, replace(RICH, constraint=constraint)) for prompt in prompts
    ]
    counted = payload_bytes(8, prompts, constraint)
    assert counted == 3 * (1024 + 100_000 + 3)
    assert sum(len(encode(payload)) for payload in payloads) <= counted


@pytest.mark.parametrize(("vocab_size", "num_bytes"), [(1 << 16, 3), ((1 << 16) + 1, 5), (1 << 18, 5)])
def test_a_payload_takes_no_more_than_it_is_counted_for(vocab_size: int, num_bytes: int) -> None:
    prompts = [[vocab_size - 1] * 1_000, [0]]
    longest = Payload(
        "0" * 35, 0, "g" * 80, "m" * 96, [], RICH, traceparent="0" * 55, adapter="a" * 96, partition="0" * 32
    )
    payloads = [replace(longest, prompt_token_ids=prompt) for prompt in prompts]
    counted = payload_bytes(vocab_size, prompts)
    assert counted == 2 * 1024 + 1_001 * num_bytes
    assert counted - 2 * 1024 < sum(len(encode(payload)) for payload in payloads) <= counted
