"""What a group is, by policy, and how large a batch is on average."""

from __future__ import annotations

import pytest

from services.queue_manager.grouping import PRIOR_BATCH, Batches, GroupingRule, grouping_rule
from shared.config import QueueOptions
from shared.messages import NodeState
from shared.step_cost import ModelRate, StepCost

COST = StepCost(0.02, 1e-4, 1e-7)


def node(name: str, max_num_seqs: int, **kv_tokens: int) -> NodeState:
    rates = [
        ModelRate(model, COST, kv_tokens=tokens, kv_token_bytes=1, load_s=1) for model, tokens in kv_tokens.items()
    ]
    return NodeState(node=name, model="a", tokens_per_s=0, swap_s=0, max_num_seqs=max_num_seqs, rates=rates)


def test_each_policy_has_its_groups() -> None:
    assert grouping_rule(QueueOptions(policy="qlm", delta=2)) == GroupingRule(num_batches=2, is_fine=True)
    assert grouping_rule(QueueOptions(policy="shepherd", delta=2)) == GroupingRule(num_batches=1, is_fine=False)
    assert grouping_rule(QueueOptions(policy="edf")) == GroupingRule(num_batches=0, is_fine=False)
    assert grouping_rule(QueueOptions(policy="fcfs")) == GroupingRule(num_batches=0, is_fine=False)


def test_before_any_node_has_told_there_is_a_prior() -> None:
    assert Batches({}).average("a", 1000) == PRIOR_BATCH


@pytest.mark.parametrize(("context_tokens", "batch"), [(10, 64), (100, 64), (1000, 10), (20_000, 0.5), (0, 64)])
def test_a_batch_is_bounded_by_places_and_by_memory(context_tokens: float, batch: float) -> None:
    batches = Batches({})
    batches.learn([node("n0", 64, a=10_000)])
    assert batches.average("a", context_tokens) == batch


def test_unlike_nodes_count_alike() -> None:
    batches = Batches({})
    batches.learn([node("n0", 64, a=10_000), node("n1", 16, a=2_000, b=500)])
    assert [batches.average("a", context) for context in (1, 1000)] == [40, 6]
    assert [batches.average("b", context) for context in (1, 100)] == [16, 5]


def test_nodes_that_say_nothing_change_nothing() -> None:
    batches = Batches({})
    batches.learn([node("n0", 64, a=10_000)])
    batches.learn([node("n0", 0, a=10), node("n1", 8, a=0), node("n2", 8)])
    assert batches.average("a", 1000) == 10, "the last that was told, while all are starting anew"
