"""What a queue tells those who wait, where a batch keeps headroom for the promises of those who run."""

from __future__ import annotations

from services.queue_manager.groups import RequestGroups
from services.queue_manager.predictions import Predictions
from services.queue_manager.state import Node, State
from shared.placement import NodeState
from shared.step_cost import ModelRate, StepCost
from tests.unit.queue_manager.books import OPTIONS, make_group, make_queues, place


def waits(max_running: int | None, later_s: float = 3600.0) -> dict[str, float]:
    """Of the first member of each group, behind four who run where there are eight places; ``later`` is due then."""
    rate = ModelRate("a", StepCost(0.1, 0.0, 0.0), kv_tokens=0, kv_token_bytes=1, load_s=0.0)
    known = NodeState("n0", "a", max_num_seqs=8, rates=[rate])
    state = State(nodes={"n0": Node("n0", "1", known, max_running=max_running)})
    make_group(state, "runs", waiting=0, running=4)
    make_group(state, "soon", due_s=0.0, kind="soon")
    make_group(state, "later", due_s=later_s, kind="later")
    place(state, "n0", "runs", "soon", "later")
    predictions = Predictions(state, RequestGroups(state, OPTIONS, {}), make_queues(state), OPTIONS)
    outlooks = predictions.outlooks(state.nodes["n0"], 0.0)
    return {group.gid: outlook.place_and_prompt(0)[0].mean_s for group, outlook in outlooks}


def test_where_there_is_room_everybody_begins_at_once() -> None:
    assert waits(None) == {"soon": 0.0, "later": 0.0}
    assert waits(8) == {"soon": 0.0, "later": 0.0}


def test_who_is_patient_waits_for_a_place_in_the_batch_that_leaves_headroom() -> None:
    bounded = waits(4)
    assert bounded["soon"] == 0.0, "it has no time"
    assert bounded["later"] > 0.0


def test_it_waits_no_longer_than_its_time_lasts() -> None:
    """With half the places the batch has half the throughput, which is what time is reckoned with: it stays patient."""
    assert waits(4, later_s=1e-3)["later"] == waits(4)["later"]
    assert 0.0 < waits(3, later_s=1e-3)["later"] < 0.01 < waits(3)["later"]
    assert waits(4, later_s=0.0)["later"] == 0.0
