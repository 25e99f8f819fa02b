"""What a group is, by policy, and how large a batch is on average."""

from __future__ import annotations

from services.queue_manager.state.grouping import LEAST_BATCH, PRIOR_BATCH, Batches, most_requests
from shared.config.services.queue import QueueOptions
from shared.messages.nodes.nodes import NodeState


def node(name: str, model: str, max_num_seqs: int = 64) -> NodeState:
    return NodeState(node=name, model=model, max_num_seqs=max_num_seqs)


def test_each_policy_has_its_groups() -> None:
    average = 10
    sizes = {
        policy: most_requests(QueueOptions(policy=policy, delta=1.5), average)
        for policy in ("qlm", "shepherd", "edf", "fcfs")
    }
    assert sizes == {"qlm": 15, "shepherd": PRIOR_BATCH, "edf": 1, "fcfs": 1}
    assert [QueueOptions(policy=policy).rules.is_fine for policy in ("qlm", "edf")] == [True, False]


def test_a_group_has_one_request_at_least() -> None:
    assert most_requests(QueueOptions(delta=0.1), 4) == 1


def test_while_there_is_little_to_do_a_batch_counts_as_small() -> None:
    assert Batches({}).average("a") == LEAST_BATCH


def test_a_batch_is_the_part_of_a_node_when_all_share_alike() -> None:
    batches = Batches({})
    batches.learn([node("n0", "a"), node("n1", "a"), node("n2", "b")])
    for _ in range(10):
        batches.add("a")
        batches.add("b")
    assert (batches.average("a"), batches.average("b")) == (5, 10)
    batches.remove("b")
    assert batches.average("b") == 9


def test_a_model_that_no_node_holds_is_one_batch() -> None:
    batches = Batches({})
    batches.learn([node("n0", "a")])
    for _ in range(6):
        batches.add("a")
    batches.learn([node("n0", "b")])
    assert batches.average("a") == 6


def test_no_batch_is_larger_than_a_node_can_run() -> None:
    batches = Batches({})
    for _ in range(100):
        batches.add("a")
    assert batches.average("a") == PRIOR_BATCH, "nobody has told"
    batches.learn([node("n0", "a", max_num_seqs=2), node("n1", "a", max_num_seqs=3)])
    assert batches.average("a") == 3
