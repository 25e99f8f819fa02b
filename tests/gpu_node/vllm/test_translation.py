"""What vLLM is asked for a request's continuations."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from gpu_node.engine.requests.sequence import EngineRequest
from gpu_node.vllm.serving.translation import core_request
from gpu_node.vllm.words.border import CoreConstraint, CoreRequest, OwnDraw
from shared.messages.requests.payload import Constraint, Payload
from tests.gpu_node.vllm.made import EOS, model, payload


def asked(one: Payload) -> list[CoreRequest]:
    request = EngineRequest.of(one, 0, itertools.count(), max_model_len=32)
    request.first_enqueued_s = one.enqueued_s
    return [core_request(request, sequence, model()) for sequence in request.sequences]


def test_a_first_attempt() -> None:
    (one,) = asked(payload("a", [5, 6, 7], 4, temperature=0.5, top_k=3, stop_token_ids=[9]))
    assert (one.core_id, one.token_ids, one.max_tokens) == ("0", [5, 6, 7], 4)
    assert (one.temperature, one.top_k, one.stop_token_ids) == (0.5, 3, [EOS, 9])
    assert one.own_draw is None, "nobody gave a seed: vLLM draws by itself"


def test_what_the_client_has_goes_along_as_prompt() -> None:
    (one,) = asked(payload("a", [5, 6, 7], 4, outputs=[[8, 9]]))
    assert (one.token_ids, one.max_tokens) == ([5, 6, 7, 8, 9], 2)


def test_no_more_than_the_model_is_long() -> None:
    (one,) = asked(payload("a", [5] * 30, 100))
    assert one.max_tokens == 2


def test_an_end_that_is_not_wanted_is_none() -> None:
    (one,) = asked(payload("a", ignore_eos=True))
    assert one.stop_token_ids == []


def test_each_choice_is_a_request_of_its_own() -> None:
    both = asked(payload("a", [5, 6], 4, num_choices=2, num_candidates=2, temperature=1.0, is_seeded=True, seed=3))
    assert [one.core_id for one in both] == ["0", "1"]
    assert [one.own_draw for one in both] == [OwnDraw(3, 0, 2), OwnDraw(3, 1, 2)]


def test_who_is_due_earlier_comes_first() -> None:
    (soon,), (later,), (never,) = (
        asked(payload("a", due_s=1010.0)),
        asked(payload("b", due_s=1010.5)),
        asked(payload("c")),
    )
    assert (soon.priority, later.priority, never.priority) == (1_010_000, 1_010_500, 87_400_000)


def test_draws_are_our_own_where_vllm_s_would_be_others() -> None:
    def is_own(**sampling: Any) -> bool:
        return asked(payload("a", **sampling))[0].own_draw is not None

    assert is_own(temperature=1.0, is_seeded=True)
    assert not is_own(is_seeded=True), "greedy: no chance in it"
    assert not is_own(presence_penalty=1.0)
    assert is_own(presence_penalty=1.0, outputs=[[8]]), "vLLM would take the output for prompt"


def test_the_adapter_goes_along_with_each_choice() -> None:
    both = asked(payload("a", adapter="legal", num_choices=2, num_candidates=2))
    assert [one.adapter for one in both] == ["legal", "legal"]
    assert asked(payload("b"))[0].adapter == ""


def test_the_partition_goes_along_with_each_choice() -> None:
    both = asked(replace(payload("a", num_choices=2, num_candidates=2), partition="0f" * 16))
    assert [one.partition for one in both] == ["0f" * 16] * 2
    assert asked(payload("b"))[0].partition == ""


def test_a_constraint_goes_along_with_the_output_that_each_choice_has() -> None:
    digits = Constraint("regex", "[0-9]+")
    both = asked(payload("a", constraint=digits, outputs=[[8, 9], []], num_choices=2, num_candidates=2))
    assert [one.constrained for one in both] == [CoreConstraint(digits, [8, 9]), CoreConstraint(digits, [])]
    assert asked(payload("b"))[0].constrained is None


def test_what_the_model_is_served_for_goes_along() -> None:
    request = EngineRequest.of(payload("a", max_tokens=1, is_embedding=True), 0, itertools.count(), max_model_len=32)
    (sequence,) = request.sequences
    assert [core_request(request, sequence, model(task=task)).task for task in ("embed", "score")] == ["embed", "score"]
