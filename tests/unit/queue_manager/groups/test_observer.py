"""What is learnt by looking at what runs."""

from __future__ import annotations

import math

import msgspec
import pytest

from services.queue_manager.groups.observer import BUSY_S, Observer
from services.queue_manager.learnt.calibration import MEMORY_S, PRIOR_S, Calibration
from services.queue_manager.learnt.kept_batch import KeptBatch
from services.queue_manager.learnt.lengths import LengthKey, Lengths, bin_of
from services.queue_manager.learnt.running import LOOK_INTERVAL_S, MAX_SINCE_S, RunningRequests
from services.queue_manager.learnt.token_rates import TokenRate, TokenRates
from services.queue_manager.learnt.weights_at import WeightsAt
from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node
from services.queue_manager.state.request import Request
from services.queue_manager.state.state import State
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.step_cost import ModelRate, StepCost
from shared.messages.requests.slo import Slo

RATE = ModelRate("a", StepCost(0.05, 0.0, 0.0), kv_tokens=1000, kv_token_bytes=1, load_s=0.0)
KNOWN = NodeState(node="n0", model="a", device="gpu", max_num_seqs=8, rates=[RATE])


def request(name: str, *, node: str = "", arrival_s: float = 0.0, begins_s: float = 0.0) -> Request:
    slo = Slo(name="batch-2", ttft_s=3600.0, deadline_s=None)
    return Request(
        name, "gw", "a", slo, "t", 10, 100, arrival_s=arrival_s, attempt=0, group="g0", node=node, begins_s=begins_s
    )


def observed(
    *,
    now: float,
    waits: bool = True,
    since_s: float = 0.0,
    before_s: float = 1.0,
    pace: TokenRate | None,
    patient: tuple[str, ...] = (),
    num_unread: int = 0,
    ready_at_s: float = 0.0,
) -> State:
    """One request runs since 1 s, and another waits since a time, or not; others wait for their prompts.

    Somebody looks so long before, now, and once more, which is too early to see anything.
    """
    requests = {"r0": request("r0", node="n0", begins_s=1.0), "r1": request("r1", arrival_s=since_s)}
    requests |= {f"u{number}": request(f"u{number}", node="n0", begins_s=now + 1.0) for number in range(num_unread)}
    runs = {name: None for name, one in requests.items() if one.node}
    state = State(requests=requests, paces={} if pace is None else {WeightsAt("a", "n0"): pace})
    state.groups["g0"] = Group("g0", "a", "batch-2", waiting={"r1": None} if waits else {}, running=runs)
    known = msgspec.structs.replace(KNOWN, ready_at_s=ready_at_s)
    state.nodes["n0"] = Node("n0", "e0", known, queue=["g0"], told=[("g0", 1, None)] if waits else [])
    if patient:
        state.nodes["n0"].max_running, state.nodes["n0"].patient = 1, list(patient)
    running = RunningRequests(state.running)
    for name in runs:
        running.add("a", name)
    lengths, paces = Lengths(state.lengths), TokenRates(state.paces)
    for _ in range(16):
        lengths.observe("a", "batch-2", "t", 60, is_cut=False)
    observer = Observer(state, running, lengths, paces, Calibration(state.fits))
    for at_s in (now - before_s, now, now + 0.4 * LOOK_INTERVAL_S):
        observer.look("a", at_s)
    return state


def test_a_busy_node_is_compared_with_the_model() -> None:
    """Where 8 have places and draw 160 tokens a second, one runs, and draws 10 in a second."""
    (fit,) = observed(now=3.0, pace=TokenRate(tokens=20.0, seconds=2.0)).fits.values()
    kept = math.exp(-1.0 / MEMORY_S) * PRIOR_S
    assert fit.tokens == pytest.approx(kept * 160 + 10)
    assert fit.modelled_tokens == pytest.approx(kept * 160 + 160)
    assert fit.places_ratio == pytest.approx((kept * 8 + 1) / (kept * 8 + 8))


def test_who_waits_for_its_prompt_takes_no_place() -> None:
    pace = TokenRate(tokens=20.0, seconds=2.0)
    assert observed(now=3.0, pace=pace, num_unread=5).fits == observed(now=3.0, pace=pace).fits


def test_nothing_is_concluded_where_nobody_waits_or_no_pace_is_known() -> None:
    pace = TokenRate(tokens=20.0, seconds=2.0)
    assert observed(now=3.0, waits=False, pace=pace).fits == {}
    assert observed(now=3.0, since_s=3.0 - BUSY_S / 2, pace=pace).fits == {}
    assert observed(now=3.0, pace=None).fits == {}
    assert observed(now=8.0, before_s=MAX_SINCE_S + 0.1, pace=pace).fits == {}, "much may have changed since then"
    assert observed(now=3.0, pace=pace, patient=("g0",)).fits == {}, "a small batch tells nothing of places"
    assert observed(now=3.0, pace=pace, ready_at_s=4.0).fits == {}, "it loads"


def test_where_a_batch_is_kept_small_it_is_seen_how_many_run() -> None:
    """For a second, one that runs and five that wait for their prompts: all six have a place, beside a limit of 1."""
    pace = TokenRate(tokens=20.0, seconds=2.0)
    state = observed(now=3.0, pace=pace, patient=("g0",), num_unread=5)
    assert state.nodes["n0"].kept == KeptBatch("a", 1, 1.0, 6.0)
    assert observed(now=3.0, pace=pace, num_unread=5).nodes["n0"].kept == KeptBatch()


def test_what_runs_counts_at_what_it_has_drawn() -> None:
    """Two seconds at 10 tokens a second: the bin of 20 tokens."""
    state = observed(now=3.0, pace=TokenRate(tokens=20.0, seconds=2.0))
    assert state.lengths[LengthKey("a", "batch-2", "t")].running == {17: 1}
    assert state.running["a"].looked_at_s == 3.0


def test_who_was_evicted_counts_as_cut_at_what_it_has_drawn() -> None:
    """One runs and has drawn none; one waits behind 70 tokens of its answer."""
    evicted = request("r1")
    evicted.done_tokens, evicted.group = 70, "g1"
    state = State(requests={"r0": request("r0", node="n0", begins_s=3.0), "r1": evicted})
    state.groups["g0"] = Group("g0", "a", "batch-2", running={"r0": None})
    state.groups["g1"] = Group("g1", "a", "batch-2", root="g0", waiting={"r1": None})
    running = RunningRequests(state.running)
    running.add("a", "r0")
    lengths = Lengths(state.lengths)
    lengths.observe("a", "batch-2", "t", 60, is_cut=False)
    Observer(state, running, lengths, TokenRates(state.paces), Calibration(state.fits)).look("a", 3.0)
    assert state.lengths[LengthKey("a", "batch-2", "t")].running == {bin_of(1): 1, bin_of(70): 1}
