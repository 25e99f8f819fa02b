"""The books of a running vLLM: what it is asked, and what clients hear."""

from __future__ import annotations

import itertools
import struct

from gpu_node.engine.requests.chunk import OutputChunk
from gpu_node.vllm.serving.book import Change, CoreBook
from gpu_node.vllm.words.border import CoreOutput, CoreStep
from shared.messages.requests.payload import Constraint
from shared.messages.requests.token_logprob import TokenLogprob
from tests.gpu_node.vllm.made import EOS, OPTIONS, model, payload, row, step


def book() -> CoreBook:
    return CoreBook(model(), OPTIONS, itertools.count())


def ids(change: Change) -> list[str]:
    return [one.core_id for one in change.begin]


def test_tokens_come_with_attempt_place_and_end() -> None:
    one = book()
    assert ids(one.add(payload("a", max_tokens=2, attempt=3, outputs=[]))) == ["0"]
    assert one.take(step({"0": 8})).chunks == [OutputChunk("a", 3, 0, [8])]
    assert one.take(step({"0": 9}, last=["0"])).chunks == [OutputChunk("a", 3, 1, [9], "length", is_last=True)]
    assert not one.has_work
    one.check()


def test_an_attempt_that_goes_on_counts_from_where_its_client_is() -> None:
    one = book()
    one.add(payload("a", outputs=[[8, 9]]))
    assert one.take(step({"0": 10})).chunks == [OutputChunk("a", 0, 2, [10])]


def test_a_token_that_stops_ends_the_output_and_is_in_it() -> None:
    one = book()
    one.add(payload("a"))
    change = one.take(step({"0": EOS}, last=["0"]))
    assert change.chunks == [OutputChunk("a", 0, 0, [EOS], "stop", is_last=True)]
    assert change.end == []


def test_what_vllm_would_run_on_for_is_ended() -> None:
    one = book()
    one.add(payload("a"))
    assert one.take(step({"0": EOS})).end == ["0"]


def test_an_end_that_is_none_of_ours_is_an_error() -> None:
    one = book()
    one.add(payload("a", num_choices=2, num_candidates=2, temperature=1.0))
    change = one.take(step({"0": 8}, last=["0"]))
    assert [(chunk.start, chunk.finish_reason, chunk.is_last) for chunk in change.chunks] == [
        (0, "", False),
        (1, "error", True),
    ]
    assert change.end == ["0", "1"], "all of the request goes"
    assert not one.has_work


def test_choices_end_one_by_one() -> None:
    one = book()
    one.add(payload("a", max_tokens=1, num_choices=2, num_candidates=2, temperature=1.0))
    first, second = one.take(step({"1": 8}, last=["1"])).chunks, one.take(step({"0": 9}, last=["0"])).chunks
    assert first == [OutputChunk("a", 0, 0, [8], "length", choice=1)]
    assert second == [OutputChunk("a", 0, 0, [9], "length", choice=0, is_last=True)]


def test_candidates_are_ranked_by_their_logprobs_and_told_at_the_end() -> None:
    one = book()
    one.add(payload("a", max_tokens=1, num_choices=1, num_candidates=2, temperature=1.0))

    def drawn(own_id: str, token: int, logprob: float) -> CoreStep:
        return CoreStep([CoreOutput(own_id, [token], [TokenLogprob(logprob, [])], is_last=True)], 0.5)

    assert one.take(drawn("0", 8, -2.0)).chunks == []
    assert one.take(drawn("1", 9, -1.0)).chunks == [OutputChunk("a", 0, 0, [9], "length", is_last=True)]


def test_who_was_removed_is_silent() -> None:
    one = book()
    one.add(payload("a"))
    assert one.remove("a").end == ["0"]
    assert one.remove("a") == Change()
    assert one.take(step({"0": 8})) == Change()
    assert one.num_free_blocks == 10
    one.check()


def test_what_can_never_run_is_refused_at_once_and_by_name() -> None:
    one = book()
    refused = [
        one.add(payload("long", [5] * 40)).chunks,
        one.add(payload("beam", is_beam=True, num_candidates=2, num_choices=2)).chunks,
    ]
    assert [(chunk.finish_reason, chunk.error) for (chunk,) in refused] == [
        ("refused", "40 tokens leave no room for output: 'm' takes 32"),
        ("refused", "this node's engine is vLLM, which has no beam search; leave use_beam_search out"),
    ]
    assert not one.has_work


def test_an_adapter_is_asked_for_where_the_model_has_it_and_else_refused() -> None:
    one = CoreBook(model(adapters=["legal"]), OPTIONS, itertools.count())
    assert [asked.adapter for asked in one.add(payload("a", adapter="legal")).begin] == ["legal"]
    (chunk,) = one.add(payload("b", adapter="poems")).chunks
    assert (chunk.finish_reason, chunk.error) == ("refused", "'m' has no adapter 'poems' at this node")
    one.check()


def test_an_attempt_of_which_all_is_there_only_ends() -> None:
    one = book()
    change = one.add(payload("a", max_tokens=2, outputs=[[8, 9]]))
    assert change == Change([OutputChunk("a", 0, 2, [], "length", is_last=True)])


def test_who_waits_is_who_vllm_has_computed_nothing_of() -> None:
    one = book()
    one.add(payload("a"))
    one.add(payload("b"))
    assert (one.num_running, one.num_waiting) == (0, 2)
    one.take(step({}, begun=["0"]))
    assert (one.num_running, one.num_waiting) == (1, 1)


def test_prompts_that_were_found_in_vllm_s_cache_are_counted() -> None:
    one = book()
    one.add(payload("a", [5, 6, 7, 8, 9]))
    one.take(CoreStep([CoreOutput("0", [10], num_cached_tokens=4)], 0.5))
    one.take(CoreStep([CoreOutput("0", [11], num_cached_tokens=4)], 0.5))
    assert (one.counts.first_queried_tokens, one.counts.first_cached_tokens) == (5, 4)


def test_what_was_found_of_a_prompt_is_told_with_its_first_token() -> None:
    one = book()
    one.add(payload("a", [5, 6, 7, 8, 9]))
    assert one.take(CoreStep([CoreOutput("0", [10], num_cached_tokens=4)], 0.5)).chunks[0].cached_tokens == 4
    assert one.take(step({"0": 11})).chunks[0].cached_tokens is None


def test_of_several_choices_the_first_tells_and_what_the_others_found_of_it_does_not_count() -> None:
    one = book()
    one.add(payload("a", [5, 6, 7, 8, 9], num_choices=2, num_candidates=2, temperature=1.0))
    second = one.take(CoreStep([CoreOutput("1", [10], num_cached_tokens=4)], 0.5)).chunks
    first = one.take(CoreStep([CoreOutput("0", [10], num_cached_tokens=0)], 0.5)).chunks
    assert [(chunk.choice, chunk.cached_tokens) for chunk in second + first] == [(1, None), (0, 0)]


def test_where_vllm_does_not_say_it_is_not_told() -> None:
    one = book()
    one.add(payload("a", [5, 6, 7, 8, 9]))
    assert one.take(step({"0": 10})).chunks[0].cached_tokens is None


def test_no_more_are_let_in_than_are_predicted_to_fit() -> None:
    """Of 10 blocks with 4 tokens: one of 3 + 12 tokens, whose last is never computed, grows to 14 tokens and may waste
    3: 17 slots, 4 whole blocks. A typical one needs 4 (15 tokens): of the 6 left, one more fits."""
    one = book()
    assert one.num_admittable == 1, "of nothing is anything known"
    one.add(payload("a", [5, 6, 7], 12))
    assert one.num_admittable == 1
    one.add(payload("b", [5, 6, 7], 12))
    assert one.num_admittable == 0


DIGITS = Constraint("regex", "[0-9]{2}")


def ended(*token_ids: int, core_id: str = "0", is_whole: bool = True, error: str = "") -> CoreStep:
    return CoreStep([CoreOutput(core_id, token_ids, is_last=True, is_whole=is_whole, error=error)], 0.5)


def test_an_output_that_is_whole_in_its_language_ends_there() -> None:
    one = book()
    assert one.add(payload("a", max_tokens=9, constraint=DIGITS)).chunks == []
    assert one.take(step({"0": 8})).chunks == [OutputChunk("a", 0, 0, [8])]
    change = one.take(ended(9))
    assert (change.chunks, change.end) == ([OutputChunk("a", 0, 1, [9], "stop", is_last=True)], [])
    one.check()


def test_whole_at_its_last_token_is_no_length() -> None:
    one = book()
    one.add(payload("a", max_tokens=1, constraint=DIGITS))
    assert one.take(ended(8)).chunks == [OutputChunk("a", 0, 0, [8], "stop", is_last=True)]


def test_what_was_whole_before_it_could_draw_ends_without_a_token() -> None:
    one = book()
    had = [[8, 9], [8]]
    one.add(payload("a", max_tokens=9, outputs=had, num_choices=2, num_candidates=2, constraint=DIGITS))
    assert one.take(ended()).chunks == [OutputChunk("a", 0, 2, [], "stop")]
    assert one.take(ended(7, core_id="1")).chunks == [OutputChunk("a", 0, 1, [7], "stop", choice=1, is_last=True)]
    assert not one.has_work
    one.check()


def test_where_nobody_can_say_what_may_follow_the_request_ends_and_its_token_is_not_told() -> None:
    one = book()
    one.add(payload("a", max_tokens=9, num_choices=2, num_candidates=2, constraint=DIGITS))
    one.take(step({"0": 8, "1": 8}))
    change = one.take(ended(9, core_id="1", is_whole=False, error="structured output: too complex"))
    (chunk,) = change.chunks
    assert (chunk.start, chunk.token_ids, chunk.choice, chunk.is_last) == (1, [], 1, True)
    assert (chunk.finish_reason, chunk.error) == ("error", "structured output: too complex")
    assert change.end == ["0", "1"]
    one.check()


def test_a_text_ends_with_its_row_in_the_place_of_a_token() -> None:
    one = CoreBook(model(task="embed"), OPTIONS, itertools.count())
    assert ids(one.add(payload("a", [5] * 8, 1, attempt=2, is_embedding=True))) == ["0"]
    change = one.take(row("0", 1.0, -2.0, cached=4))
    told = OutputChunk("a", 2, 0, [], "stop", is_last=True, cached_tokens=4, embedding=struct.pack("<2f", 1.0, -2.0))
    assert change == Change([told])
    assert (one.has_work, one.counts.first_queried_tokens, one.counts.first_cached_tokens) == (False, 8, 4)
    one.check()


def test_a_row_that_is_no_row_is_an_error() -> None:
    one = CoreBook(model(task="score"), OPTIONS, itertools.count())
    one.add(payload("a", max_tokens=1, is_embedding=True))
    change = one.take(CoreStep([CoreOutput("0", [], is_last=True, error="not finite", row=bytes(8))], 0.5))
    assert [(chunk.finish_reason, chunk.error, chunk.embedding) for chunk in change.chunks] == [
        ("error", "not finite", b"")
    ]
    assert not one.has_work


def test_rows_and_text_are_asked_of_the_models_that_give_them() -> None:
    drawing, embedding = (CoreBook(model(task=task), OPTIONS, itertools.count()) for task in ("generate", "embed"))
    refused = [drawing.add(payload("a", max_tokens=1, is_embedding=True)), embedding.add(payload("b"))]
    assert [change.chunks[0].error for change in refused] == [
        "'m' gives text and no embeddings (task: generate)",
        "'m' gives embeddings and no text (task: embed)",
    ]


def test_texts_that_fit_to_their_last_token_are_as_many_as_blocks_are_left() -> None:
    """Of 10 blocks with 4 tokens each; a text of 11 tokens takes 3 of them, and none for an answer."""
    one = CoreBook(model(task="embed"), OPTIONS, itertools.count())
    one.add(payload("a", [5] * 11, 1, is_embedding=True))
    assert one.num_admittable == 2
    one.take(row("0", 1.0))
    assert one.num_admittable == 3
