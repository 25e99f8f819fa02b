"""What nodes take over from each other where they have not measured a model themselves."""

from __future__ import annotations

from dataclasses import replace

from shared.estimator.batching import PRIOR_SWAP_S
from shared.estimator.rates import share_rates
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.step_cost import DecodeYield, ModelRate, StepCost


def rate(model: str, step_s: float, load_s: float = 0.0) -> ModelRate:
    return ModelRate(model, StepCost(step_s, 0.0, 0.0), kv_tokens=100, kv_token_bytes=1, load_s=load_s)


def state(name: str, device: str, *rates: ModelRate, swap_s: float = 0.0, broken: str = "") -> NodeState:
    model = rates[0].model if rates else ""
    return NodeState(
        name, model, swap_s=swap_s, broken_models=[broken] if broken else [], device=device, rates=list(rates)
    )


def test_a_node_of_the_same_kind_is_asked_first() -> None:
    nodes = [
        state("n0", "a10", rate("a", 1.0)),
        state("n1", "h100", rate("b", 2.0)),
        state("n2", "a10", rate("b", 9.0)),
    ]
    assert share_rates(nodes, ["a", "b"])[0].rates == [rate("a", 1.0), rate("b", 9.0, PRIOR_SWAP_S)]


def test_then_any_node_then_another_model_on_the_node_itself() -> None:
    nodes = [state("n0", "a10", rate("a", 1.0), swap_s=4.0), state("n1", "h100", rate("b", 2.0))]
    assert share_rates(nodes, ["a", "b", "c"])[0].rates == [rate("a", 1.0), rate("b", 2.0, 4.0), rate("c", 1.0, 4.0)]


def test_what_guesses_bring_is_taken_of_the_same_model_alone() -> None:
    guesses = DecodeYield(rows=3.0, tokens=2.0)
    own, other = replace(rate("a", 1.0), decode=guesses), replace(rate("b", 2.0), decode=guesses)
    nodes = [state("n0", "a10", own, swap_s=4.0), state("n1", "h100", other)]
    assert [one.decode for one in share_rates(nodes, ["a", "b", "c"])[0].rates] == [guesses, guesses, DecodeYield()]


def test_a_load_takes_as_long_as_nodes_of_the_kind_have_measured() -> None:
    nodes = [state("n0", "a10", rate("a", 1.0), swap_s=4.0), state("n1", "a10", rate("c", 1.0), rate("b", 2.0, 3.0))]
    assert share_rates(nodes, ["a", "b"])[0].rates[1] == rate("b", 2.0, 3.0)


def test_what_is_measured_here_stays_and_what_is_broken_here_is_not_taken() -> None:
    nodes = [state("n0", "a10", rate("a", 1.0), broken="b"), state("n1", "a10", rate("b", 2.0), rate("a", 7.0, 1.0))]
    assert share_rates(nodes, ["a", "b"]) == nodes


def test_where_nothing_is_known_nothing_is_made_up() -> None:
    assert share_rates([state("n0", "a10")], ["a"])[0].rates == []
