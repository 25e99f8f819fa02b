"""When more comes for a model than its nodes can do. A request takes a node 0.1 s, alone and in any batch."""

from __future__ import annotations

from services.queue_manager.state.node import Node
from services.queue_manager.waits.overflow import is_outrun
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import Arrivals, GroupLoad
from shared.messages.nodes.step_cost import ModelRate, StepCost


def make_node(name: str, model: str, token_s: float = 0.01) -> Node:
    rates = [ModelRate(each, StepCost(0.0, token_s, 0.0), kv_tokens=0, kv_token_bytes=0, load_s=0.0) for each in "ab"]
    return Node(node=name, epoch="1", known=NodeState(name, model, max_num_seqs=4, rates=rates))


def coming(model: str, per_s: float, tokens: float = 10.0) -> Arrivals:
    return Arrivals(GroupLoad("", 20.0, model=model, num_waiting=1, mean_output_tokens=tokens), per_s)


def test_a_model_is_outrun_where_more_comes_than_all_its_nodes_do() -> None:
    """Ten a second at n0, five at n1; a model that no node has is outrun by any."""
    nodes = [make_node("n0", "a"), make_node("n1", "a", token_s=0.02), make_node("n2", "b")]
    assert not is_outrun(nodes, [coming("a", 14.9), coming("b", 9.9)])
    assert is_outrun(nodes, [coming("a", 15.1), coming("b", 1.0)])
    assert is_outrun(nodes, [coming("a", 1.0), coming("c", 0.1)])
    assert not is_outrun(nodes, [])


def test_kinds_of_one_model_are_added_up_with_the_mean_of_their_answers() -> None:
    """10 and 30 tokens, as often: 0.2 s each, five a second."""
    nodes = [make_node("n0", "a")]
    assert not is_outrun(nodes, [coming("a", 2.4), coming("a", 2.5, tokens=30.0)])
    assert is_outrun(nodes, [coming("a", 2.5), coming("a", 2.6, tokens=30.0)])
