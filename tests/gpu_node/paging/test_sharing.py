"""What forks save, by hand; and the beams' made-up model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import log, log1p

import pytest

from gpu_node.paging.beams import BeamTree, beam_search
from gpu_node.paging.comparison import NUM_PARTS, NUM_SEQUENCES, compare
from gpu_node.paging.generate import generate
from gpu_node.paging.server import Memory
from gpu_node.paging.sharing import Saving, measure, parallel_sampling
from gpu_node.paging.trace import TraceRequest


class Scripted:
    """Parents that the test has written down, draw by draw."""

    def __init__(self, *draws: list[int]) -> None:
        self._draws = iter(draws)

    def parents(self, num_living: int) -> Sequence[int]:
        return next(self._draws)


def sampled(requests: Sequence[TraceRequest], num_sequences: int, block_size: int = 16) -> Saving:
    samples = partial(parallel_sampling, num_sequences)
    return measure("parallel sampling", num_sequences, requests, samples, block_size, lambda _: None)


def test_a_prompt_of_full_blocks_is_shared_to_the_end() -> None:
    # 32 tokens in, 2 out: 2 blocks for all, then a block for each of the 4; alone, 4 × 2 and 4 × 3
    saving = sampled([TraceRequest(32, 2)], 4)
    assert (saving.num_shared_blocks, saving.num_own_blocks) == (2 + 6, 8 + 12)
    assert saving.saved == pytest.approx(0.6)
    assert (saving.num_copies, saving.survival) == (0, 1.0)


def test_a_block_that_the_prompt_begins_is_copied_by_all_but_the_last() -> None:
    # 20 tokens in, 3 out: block 1 holds 4 of the prompt. The last writer is its only holder and needs no copy
    saving = sampled([TraceRequest(20, 3)], 3)
    assert (saving.num_shared_blocks, saving.num_own_blocks) == (2 + 4 + 4, 6 + 6 + 6)
    assert saving.num_copies == 2


def test_requests_add_up_and_an_answer_of_one_token_is_prefill_only() -> None:
    saving = sampled([TraceRequest(32, 2), TraceRequest(16, 1)], 2)
    assert (saving.num_shared_blocks, saving.num_own_blocks) == ((2 + 4) + 1, (4 + 6) + 2)


def test_a_beam_that_falls_out_frees_its_blocks_and_a_fork_shares_them() -> None:
    # blocks of 2, prompt of 2 tokens; beams a and b. Blocks held after each write of a token:
    #   prompt [p]                                                          1
    #   both from the prompt: a [p, a0], b [p, b0]                          3
    #   both from themselves: token 2 of each fills a0, b0                  3
    #   both from a, b's table is freed: [p, a0, a1], [p, a0, b1]           4
    #   b now from a: a1 is half full, so the first writer copies it        4: p, a0 and two
    draws = [[0, 0], [0, 1], [0, 0], [0, 0]]
    saving = measure("beams", 2, [TraceRequest(2, 5)], lambda _: Scripted(*draws), 2, lambda _: None)
    assert saving.num_shared_blocks == 1 + 3 + 3 + 4 + 4
    assert saving.num_own_blocks == 2 * (1 + 2 + 2 + 3 + 3)
    assert saving.num_copies == 1
    assert saving.survival == pytest.approx((2 + 1 + 1) / 6)


def test_the_first_beams_all_come_from_the_prompt_and_the_seed_decides_the_rest() -> None:
    def tree(seed: int) -> list[list[int]]:
        beams = BeamTree(4, seed)
        return [beams.parents(1), *(beams.parents(4) for _ in range(50))]

    assert tree(7)[0] == [0, 0, 0, 0]
    assert tree(7) == tree(7)
    assert tree(7) != tree(8)
    assert all(0 <= parent < 4 for draw in tree(7) for parent in draw)
    survivors = sum(len(set(draw)) for draw in tree(7)[1:]) / (4 * 50)
    assert 0.7 < survivors < 1.0, "some fall out, most go on"


def test_the_best_beams_are_kept() -> None:
    # every candidate, without the short cut that leaves out what cannot be among the best
    class Plain(BeamTree):
        def candidates(self) -> list[tuple[float, int, int]]:
            found = []
            for beam, score in enumerate(self._scores):
                left = score
                for token in range(self._width):
                    probability = self._stick(beam, token)
                    found.append((left + log(probability), -beam, -token))
                    left += log1p(-probability)
            return sorted(found, reverse=True)[: self._width]

    beams = Plain(3, seed=5)
    num_living = 1
    for _ in range(200):
        expected = [-beam for _, beam, _ in beams.candidates()]
        assert beams.parents(num_living) == expected
        num_living = 3


def test_beams_share_more_than_samples_and_more_sequences_save_more() -> None:
    requests = generate(8, 512, seed=3).requests
    samples = [sampled(requests, number).saved for number in NUM_SEQUENCES]
    beams = [
        measure("beams", width, requests, partial(beam_search, width, 0), 16, lambda _: None).saved
        for width in NUM_SEQUENCES
    ]
    assert samples == sorted(samples)
    assert beams == sorted(beams)
    assert all(beam > sample for beam, sample in zip(beams, samples, strict=True))
    assert all(saved < 1 - 1 / width for saved, width in zip(beams, NUM_SEQUENCES, strict=True)), "one at least is held"


def test_the_comparison_is_deterministic_and_says_how_far_it_is() -> None:
    trace = generate(12, 128, seed=2)
    memory = Memory(1 << 10, 1 << 10, 128)
    heard: list[int] = []
    first = compare(trace, memory, 16, 4, heard.append)
    assert sum(heard) == NUM_PARTS * 12
    assert compare(trace, memory, 16, 4, lambda _: None) == first
    assert [one.name for one in first.schemes] == ["Treadle (paged)", "Orca (Oracle)", "Orca (Pow2)", "Orca (Max)"]
    assert compare(trace, memory, 16, 5, lambda _: None).sharing != first.sharing, "other beams"
