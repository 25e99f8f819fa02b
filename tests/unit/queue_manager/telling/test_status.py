"""When gateways are told of a long queue: ticks predict the waits one by one, and no request waits for that."""

from __future__ import annotations

from services.queue_manager.core import QueueManagerCore
from services.queue_manager.telling.lines import MANY_GROUPS, MAX_PREDICTED
from services.queue_manager.telling.status import STATUS_DELAY_S
from shared.config.config import ClusterConfig
from shared.messages.message import Tick
from shared.messages.messages import AnyMessage
from shared.messages.nodes.nodes import NodeState, NodeUp
from shared.messages.requests.requests import GatewayBeat, QueueStatus, Submit
from shared.messages.requests.slo import Slo
from shared.service.core import Send

BEGAN_S = 1.0
DUE_S = BEGAN_S + STATUS_DELAY_S


def queue_of(num_groups: int) -> QueueManagerCore:
    """A request of each of so many tenants, for a model that no node has; no plan is waited for."""
    core = QueueManagerCore(ClusterConfig())
    for number in range(num_groups):
        message = Submit(
            request_id=f"r{number}",
            gateway="gw",
            model="a",
            slo=Slo("interactive", deadline_s=20.0),
            prompt_tokens=8,
            max_tokens=100,
            tenant=f"t{number}",
        )
        core.handle(message, BEGAN_S)
    return core


def told(core: QueueManagerCore, message: AnyMessage, now: float) -> list[QueueStatus]:
    effects = core.handle(message, now)
    return [one.message for one in effects if isinstance(one, Send) and isinstance(one.message, QueueStatus)]


def test_of_few_groups_gateways_are_told_with_the_first_message_when_it_is_time() -> None:
    core = queue_of(MANY_GROUPS - 1)
    (status,) = told(core, GatewayBeat(gateway="gw"), DUE_S)
    assert [line.num_waiting for line in status.lines] == [MANY_GROUPS - 1]


def test_of_many_they_are_told_by_the_tick_that_predicts_the_last_line() -> None:
    core = queue_of(MANY_GROUPS)
    assert told(core, GatewayBeat(gateway="gw"), DUE_S) == []
    for number in range(MAX_PREDICTED):
        assert core.wake_at == DUE_S, "a tick is wanted at once"
        assert told(core, Tick(), DUE_S) == [], f"{number} of {MAX_PREDICTED} lines"
        assert told(core, GatewayBeat(gateway="gw"), DUE_S) == []
        restored = QueueManagerCore(ClusterConfig())
        restored.restore(core.snapshot())
        assert restored.state.status.turns == core.state.status.turns
    (status,) = told(core, Tick(), DUE_S)
    assert [line.num_waiting for line in status.lines] == [MANY_GROUPS]
    assert told(restored, Tick(), DUE_S) == [status], "a restored core goes on where the other was"
    assert told(core, Tick(), DUE_S) == []


def test_when_nobody_waits_any_more_no_line_is_predicted() -> None:
    core = queue_of(MANY_GROUPS)
    told(core, Tick(), DUE_S)
    assert core.state.status.turns
    core.state.groups.clear()
    core.state.num_placed = 0
    told(core, Tick(), DUE_S)
    assert core.state.status.turns == {}


def test_places_of_many_nodes_are_told_by_turns() -> None:
    """A request waits at each of 80 nodes, and its client wants to know: 32 nodes a time, behind those of the last."""
    core = QueueManagerCore(ClusterConfig())
    for number in range(80):
        known = NodeState(f"n{number:02}", f"m{number:02}", max_num_seqs=1)
        core.handle(NodeUp(epoch="1", known=known), BEGAN_S)
        message = Submit(
            request_id=f"r{number:02}",
            gateway="gw",
            model=f"m{number:02}",
            slo=Slo("interactive", deadline_s=20.0),
            prompt_tokens=8,
            max_tokens=100,
            wants_place=True,
        )
        core.handle(message, BEGAN_S)
    core.state.plan.asked_at_s = None  # no plan is waited for
    seen: list[list[str]] = []
    now = DUE_S
    while len(seen) < 3:
        seen += [[place.request_id for place in status.places] for status in told(core, Tick(), now)]
        core.state.plan.asked_at_s = None
        now += 0.1
    every = [f"r{number:02}" for number in range(80)]
    assert seen == [every[:32], every[32:64], [*every[:16], *every[64:]]]
