"""Where several models wait for a node, whoever is urgent brings others of its model along."""

from __future__ import annotations

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.learnt.arrivals import Flow
from services.queue_manager.learnt.changing_rate import Belief, ChangingRate
from services.queue_manager.state.state import Node, State
from services.queue_manager.waits.expected_order import expected_order
from services.queue_manager.waits.predictions import Predictions
from shared.config.queue import QueueOptions
from shared.messages.nodes import NodeState
from shared.messages.request_kind import RequestKind
from shared.messages.step_cost import ModelRate, StepCost
from tests.unit.queue_manager.books import OPTIONS, make_group, make_queues, place

NOW = 1_000.0
PATIENCE_S = 8.0


def queued(model: str, *groups: tuple[str, int, int]) -> State:
    """A node with this model, and its queue: groups with those who wait and run; the first letter is the model. Each
    has ten seconds of work.
    """
    state = State(nodes={"n0": Node("n0", "1", NodeState("n0", model, max_num_seqs=8))})
    for name, waiting, running in groups:
        make_group(state, name, model=name[0], waiting=waiting, running=running).drain_s = 10.0
    place(state, "n0", *(name for name, _, _ in groups))
    return state


def come(state: State, model: str, every_s: float, patience_s: float = PATIENCE_S) -> None:
    """Requests of a model have come for long, one in so many seconds."""
    rate = ChangingRate(NOW, beliefs=[Belief(1.0, 1e6 / every_s, 1e6)])
    flow = Flow(model, "interactive", -1e6, NOW, num=100.0, patience_s=100.0 * patience_s, rate=rate)
    state.flows[RequestKind(model, "interactive")] = flow


def order(state: State) -> str:
    node = state.nodes["n0"]
    queue = [state.groups[gid] for gid in node.queue]
    groups = RequestGroups(state, OPTIONS, {})
    return " ".join(group.gid for group in expected_order(groups, node.model, queue, NOW))


def test_groups_of_one_model_are_served_as_they_stand() -> None:
    state = queued("a", ("a0", 1, 0), ("a1", 1, 0))
    come(state, "a", every_s=1.0)
    assert order(state) == "a0 a1"


def test_where_nobody_urgent_comes_the_queue_is_the_order() -> None:
    state = queued("a", ("a0", 1, 0), ("a1", 1, 0), ("b0", 1, 0))
    assert order(state) == "a0 a1 b0"
    come(state, "b", every_s=5.0, patience_s=3600.0)
    assert order(state) == "a0 a1 b0", "who comes can wait for its turn as well"


def test_who_cannot_wait_brings_those_of_its_model_along() -> None:
    """One in 5 s: the first group is served by then, or begins at least; in 15 s two are; in 40 s it is their turn."""
    for every_s, expected in ((5.0, "a0 b0 b1 a1 a2"), (15.0, "a0 a1 b0 b1 a2"), (40.0, "a0 a1 a2 b0 b1")):
        state = queued("a", ("a0", 1, 0), ("a1", 1, 0), ("a2", 1, 0), ("b0", 1, 0), ("b1", 1, 0))
        come(state, "b", every_s)
        assert order(state) == expected


def test_what_runs_is_not_overtaken() -> None:
    state = queued("a", ("a0", 1, 1), ("a1", 1, 1), ("a2", 1, 0), ("b0", 1, 0))
    come(state, "b", every_s=5.0)
    assert order(state) == "a0 a1 b0 a2"


def test_those_at_the_end_join_those_of_their_model_at_the_head() -> None:
    state = queued("b", ("b0", 0, 2), ("b1", 2, 0), ("a0", 1, 0), ("a1", 1, 0), ("b2", 2, 0))
    come(state, "b", every_s=2.0)
    assert order(state) == "b0 b1 b2 a0 a1"


def test_who_runs_at_the_end_of_a_queue_stays_there() -> None:
    state = queued("a", ("a0", 1, 0), ("a1", 1, 0), ("b0", 1, 1))
    come(state, "b", every_s=2.0)
    assert order(state) == "a0 a1 b0"


def test_those_who_go_along_are_told_of_less_and_the_places_are_those_of_the_queue() -> None:
    def told(every_s: float | None, policy: str = "qlm") -> dict[str, float]:
        state = queued("a", ("a0", 8, 0), ("a1", 8, 0), ("a2", 8, 0), ("b0", 1, 0))
        node = state.nodes["n0"]
        rates = [ModelRate(model, StepCost(0.1, 0.0, 0.0), 0, 0, load_s=0.5) for model in "ab"]
        node.known = NodeState("n0", "a", max_num_seqs=8, rates=rates)
        if every_s is not None:
            come(state, "b", every_s)
        options = QueueOptions.model_validate({"policy": policy})
        predictions = Predictions(state, RequestGroups(state, options, {}), make_queues(state, options), options)
        return {group.gid: outlook.wait_at(0).mean_s for group, outlook in predictions.outlooks(node, NOW)}

    alone, visited = told(None), told(5.0)
    assert list(visited) == ["a0", "a1", "a2", "b0"]
    assert visited["b0"] < alone["b0"]
    assert visited["a2"] > alone["a2"]
    assert told(5.0, "fcfs")["b0"] > visited["b0"], "there no plan changes the order"
