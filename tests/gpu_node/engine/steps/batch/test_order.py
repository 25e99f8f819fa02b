"""Priorities, and both algorithms of AdaptiveLLM, worked by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from gpu_node.engine.measures.cost_learner import CostLearner
from gpu_node.engine.measures.kv_costs import KvCosts, MoveRates
from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.requests.sequence import EngineRequest
from gpu_node.engine.steps.admission.preemption import AlwaysRecompute, Cheaper, KvFate
from gpu_node.engine.steps.admission.set_choice import FreeRoom, SetChoice
from gpu_node.engine.steps.batch.order import Fair, FirstComeFirstServed, LeastSlack, RequestOrder, by_priority
from gpu_node.engine.steps.batch.roster import Roster
from shared.config.engines.engine import EngineOptions
from shared.messages.nodes.step_cost import StepCost
from shared.messages.requests.payload import UNPROMISED_S, Payload, Sampling
from tests.gpu_node.bookkeeping import prompt

PLAIN = EngineOptions(chunked_prefill=False, overlap_swaps=False, lazy_swaps=False)
IDS = count()


def request(
    order: int, num_tokens: int, since_s: float, due_s: float = 0.0, max_tokens: int = 4, first: int = 0
) -> EngineRequest:
    payload = Payload(
        str(order), 0, "g", "m", prompt(num_tokens, first), Sampling(max_tokens), enqueued_s=since_s, due_s=due_s
    )
    made = EngineRequest.of(payload, order, IDS, 1000)
    made.first_enqueued_s = since_s
    return made


def costs(cost: StepCost | None = None, rates: MoveRates | None = None) -> KvCosts:
    return KvCosts(PLAIN, 1000, CostLearner(cost), rates)


def ranked(order: RequestOrder, requests: list[EngineRequest], now: float) -> list[int]:
    return [one.order for one in sorted(requests, key=lambda one: by_priority(order, one, now), reverse=True)]


def test_fair_is_the_wait_by_the_length() -> None:
    """At 100 s: 50/10 = 5, 90/30 = 3, 10/2 = 5 (who came first is first), 100/100 = 1."""
    requests = [request(0, 10, 50.0), request(1, 30, 10.0), request(2, 2, 90.0), request(3, 100, 0.0)]
    assert [Fair().priority(one, 100.0) for one in requests] == [5.0, 3.0, 5.0, 1.0]
    assert ranked(Fair(), requests, 100.0) == [0, 2, 1, 3]
    assert Fair().priority(request(4, 2, 101.0), 100.0) == 0.0, "of a clock that is ahead"


def test_slack_is_what_a_promise_leaves() -> None:
    """Before any step, minus the time left; who has no promise is due in a day."""
    requests = [request(0, 10, 0.0), request(1, 10, 0.0, due_s=130.0), request(2, 10, 0.0, due_s=110.0)]
    slack = LeastSlack(costs())
    assert [slack.priority(one, 100.0) for one in requests] == [100.0 - UNPROMISED_S, -30.0, -10.0]
    assert ranked(slack, requests, 100.0) == [2, 1, 0]


def test_the_lowest_priority_gives_way() -> None:
    """Algorithm 1: its comment says so; `pop()` of its list would not."""
    requests = [request(0, 10, 50.0), request(1, 30, 10.0), request(2, 100, 0.0), request(3, 2, 90.0)]
    assert AlwaysRecompute(FirstComeFirstServed()).victim(requests, 100.0).order == 3
    assert AlwaysRecompute(Fair()).victim(requests, 100.0).order == 2


def held(blocks: BlockManager, num_tokens: int, first: int = 0) -> EngineRequest:
    """All of its tokens are computed."""
    made = request(0, num_tokens, 0.0, first=first)
    for sequence in made.sequences:
        num_cached_tokens = blocks.open(sequence.sequence_id, sequence.token_ids)
        blocks.append(sequence.sequence_id, num_cached_tokens, num_tokens)
        sequence.num_computed_tokens = num_tokens
    return made


def test_its_fate_is_the_cheaper_one() -> None:
    """8 tokens in 2 blocks of 1000 bytes. Again: 10 ms + 8 rows of 1 ms. A swap: 2000 bytes out and in."""
    step = StepCost(0.010, 0.001, 0.0)
    for bytes_per_s, fate in ((250_000.0, KvFate.SWAP), (200_000.0, KvFate.RECOMPUTE)):  # 16 ms; 20 ms
        blocks = BlockManager.alone(8, block_size=4, model="m", num_host_blocks=2)
        policy = Cheaper(costs(step, MoveRates(bytes_per_s, bytes_per_s)))
        assert policy.fate(held(blocks, 8), blocks) is fate


def test_without_room_it_is_computed_again_and_without_knowledge_swapped() -> None:
    fast = MoveRates(1e9, 1e9)
    for cost, num_host_blocks, fate in (
        (StepCost(0.010, 0.001, 0.0), 1, KvFate.NO_ROOM),
        (None, 2, KvFate.SWAP),
    ):
        blocks = BlockManager.alone(8, block_size=4, model="m", num_host_blocks=num_host_blocks)
        assert Cheaper(costs(cost, fast)).fate(held(blocks, 8), blocks) is fate


def test_what_was_cached_for_others_who_came_back_counts_both_ways() -> None:
    """As above, 18 ms beside 11 out and 5 in. When nearly all stays cached, 10 ms beside 11."""
    blocks = BlockManager.alone(8, block_size=4, model="m", num_host_blocks=2)
    policy = Cheaper(costs(StepCost(0.010, 0.001, 0.0), MoveRates(2000 / 0.011, 2000 / 0.005)))
    victim = held(blocks, 8)
    assert policy.fate(victim, blocks) is KvFate.SWAP
    for _ in range(60):
        policy.note_return(num_blocks=2, num_cached_blocks=2)
    assert policy.fate(victim, blocks) is KvFate.RECOMPUTE


def test_blocks_that_others_hold_are_free_to_compute_again() -> None:
    """Of 12 tokens, 8 are another's: 4 rows of 1 ms and 1 ms a step, beside 6 ms for 3 blocks out and 2 for 1 in."""
    blocks = BlockManager.alone(8, block_size=4, model="m", num_host_blocks=8)
    policy = Cheaper(costs(StepCost(0.001, 0.001, 0.0), MoveRates(0.5e6, 0.5e6)))
    first = held(blocks, 12)
    assert policy.fate(first, blocks) is KvFate.SWAP  # 12 ms beside 13
    sequence = first.sequences[0]
    blocks.publish(sequence.sequence_id, sequence.token_ids, 8)
    second = held(blocks, 12)
    assert blocks.num_lasting_blocks([second.sequences[0].sequence_id]) == 2
    assert policy.fate(second, blocks) is KvFate.RECOMPUTE


def test_where_copies_are_made_late_what_stays_cached_is_not_copied_either() -> None:
    """When nearly all stays cached, 10 ms beside next to nothing."""
    blocks = BlockManager.alone(8, block_size=4, model="m", num_host_blocks=2, swap_copies="late")
    rates = MoveRates(250_000.0, 250_000.0)
    policy = Cheaper(KvCosts(replace(PLAIN, lazy_swaps=True), 1000, CostLearner(StepCost(0.010, 0.001, 0.0)), rates))
    for _ in range(60):
        policy.note_return(num_blocks=2, num_cached_blocks=2)
    assert policy.fate(held(blocks, 8), blocks) is KvFate.SWAP


def chosen(requests: list[EngineRequest], swapped: list[int], room: FreeRoom, now: float = 100.0) -> list[int]:
    roster = Roster(BlockManager.alone(8, block_size=4, model="m"))
    for one in requests:
        roster.add(one)
        if one.order in swapped:
            roster.swapped[one.request_id] = one
    blocks = {one.order: -(-one.num_tokens // 4) for one in requests}
    return [one.order for one in SetChoice(Fair()).choose(roster, room, lambda one: blocks[one.order], now)]


def test_the_set_of_the_higher_mean_priority_comes_next() -> None:
    """Algorithm 2 at 100 s. In host memory: 100/10 = 10 and 80/20 = 4; waiting: 60/10 = 6."""
    requests = [request(0, 10, 0.0), request(1, 20, 20.0), request(2, 10, 40.0)]
    assert chosen(requests, [0, 1], FreeRoom(9, 99)) == [0, 1], "7 is more than 6"
    assert chosen(requests, [0, 1], FreeRoom(9, 3)) == [0], "the second does not fit: 10 is more than 6"
    assert chosen(requests, [1], FreeRoom(9, 99)) == [0, 2], "8 is more than 4"
    assert chosen(requests, [0, 1], FreeRoom(9, 2)) == []
    assert chosen(requests, [0, 1], FreeRoom(0, 99)) == []


def test_nobody_passes_one_that_does_not_fit() -> None:
    requests = [request(0, 40, 0.0), request(1, 4, 99.0)]  # 2.5 and 0.25
    assert chosen(requests, [], FreeRoom(9, 5)) == []


def test_a_ranking_that_is_kept_takes_newcomers_in_and_loses_who_has_gone() -> None:
    roster = Roster(BlockManager.alone(8, block_size=4, model="m"))
    choice = SetChoice(Fair())
    for one in (request(0, 4, 0.0), request(1, 8, 0.0), request(2, 12, 0.0)):
        roster.add(one)

    def next_one() -> list[int]:
        return [one.order for one in choice.choose(roster, FreeRoom(1, 9), lambda _: 1, 100.0)]

    assert next_one() == [0]
    assert next_one() == [0], "who was chosen but did not come is there again"
    roster.add(request(3, 2, 0.0))
    assert next_one() == [3]
    roster.remove(roster.requests["3"])
    roster.remove(roster.requests["0"])
    assert next_one() == [1]
