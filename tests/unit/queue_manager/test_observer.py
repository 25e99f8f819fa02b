"""What is learnt by looking at what runs."""

from __future__ import annotations

from services.queue_manager.calibration import Calibration
from services.queue_manager.lengths import Lengths
from services.queue_manager.observer import BUSY_S, Observer
from services.queue_manager.paces import Pace, Paces
from services.queue_manager.running import LOOK_INTERVAL_S, Running
from services.queue_manager.state import Group, Node, Request, State, Unread
from shared.placement import NodeState
from shared.slo import Slo
from shared.step_cost import ModelRate, StepCost

RATE = ModelRate("a", StepCost(0.05, 0.0, 0.0), kv_tokens=1000, kv_token_bytes=1, load_s=0.0)
KNOWN = NodeState(node="n0", model="a", device="gpu", max_num_seqs=8, rates=[RATE])


def request(name: str, *, node: str = "", arrival_s: float = 0.0) -> Request:
    """One that runs was pulled at 1 s."""
    slo = Slo(name="batch-2", ttft_s=3600.0, deadline_s=None)
    return Request(
        name, "gw", "a", slo, "t", 10, 100, arrival_s=arrival_s, attempt=0, group="g0", node=node, begins_s=1.0
    )


def observed(
    *,
    now: float,
    waits: bool = True,
    since_s: float = 0.0,
    pace: Pace | None,
    patient: tuple[str, ...] = (),
    unread_s: float = 0.0,
) -> State:
    """One request runs, and another waits since a time, or not. Whoever looks again too early sees nothing."""
    requests = {"r0": request("r0", node="n0"), "r1": request("r1", arrival_s=since_s)}
    state = State(requests=requests, paces={} if pace is None else {"a n0": pace})
    state.groups["g0"] = Group("g0", "a", "batch-2", waiting={"r1": None} if waits else {}, running={"r0": None})
    state.nodes["n0"] = Node("n0", "e0", KNOWN, queue=["g0"], told=[("g0", 1, None)] if waits else [])
    state.nodes["n0"].unread = Unread(until_s=now + unread_s, share=0.5)
    if patient:
        state.nodes["n0"].max_running, state.nodes["n0"].patient = 1, list(patient)
    running = Running(state.running)
    running.add("a", "r0")
    lengths, paces = Lengths(state.lengths), Paces(state.paces)
    for _ in range(16):
        lengths.observe("a", "batch-2", "t", 60, is_cut=False)
    observer = Observer(state, running, lengths, paces, Calibration(state.fits))
    observer.look("a", now)
    observer.look("a", now + 0.4 * LOOK_INTERVAL_S)
    return state


def test_a_busy_node_is_compared_with_the_model() -> None:
    state = observed(now=3.0, pace=Pace(tokens=20.0, seconds=2.0))
    assert state.fits.keys() == {"a gpu"}
    assert state.fits["a gpu"].places_ratio < 1.0  # one runs where eight have places
    assert state.fits["a gpu"].seconds_ratio > 1.0  # 10 tokens a second instead of 20


def test_nothing_is_concluded_where_nobody_waits_or_no_pace_is_known() -> None:
    pace = Pace(tokens=20.0, seconds=2.0)
    assert observed(now=3.0, waits=False, pace=pace).fits == {}
    assert observed(now=3.0, since_s=3.0 - BUSY_S / 2, pace=pace).fits == {}
    assert observed(now=3.0, pace=None).fits == {}
    assert observed(now=3.0, pace=pace, patient=("g0",)).fits == {}, "a small batch tells nothing of places"


def test_nothing_is_concluded_while_those_who_were_pulled_wait_for_prompts() -> None:
    pace = Pace(tokens=20.0, seconds=2.0)
    assert observed(now=3.0, pace=pace, unread_s=BUSY_S).fits.keys() == {"a gpu"}
    assert observed(now=3.0, pace=pace, unread_s=BUSY_S + 0.1).fits == {}, "many have no place in the batch yet"


def test_what_runs_counts_at_what_it_has_drawn() -> None:
    """Two seconds at 10 tokens a second: the bin of 20 tokens."""
    state = observed(now=3.0, pace=Pace(tokens=20.0, seconds=2.0))
    assert state.lengths["a batch-2 t"].running == {17: 1}
    assert state.running["a"].looked_at_s == 3.0
