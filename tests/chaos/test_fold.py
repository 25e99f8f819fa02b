"""A log in which a service has sent what its inbox says, and others in which it has not."""

from __future__ import annotations

import pytest

from services.kv_manager.core import KvManagerCore
from services.queue_manager.core import QueueManagerCore
from shared.bus import streams
from shared.config.config import ClusterConfig
from shared.messages.codec import FIELD, encode
from shared.messages.message import Message, Tick
from shared.messages.messages import AnyMessage
from shared.messages.nodes.nodes import NodeState, NodeUp
from shared.messages.requests.requests import (
    HANDED_OVER,
    Abort,
    Attempt,
    Cancel,
    Evicted,
    EvictedRequest,
    GatewayBeat,
    ImageTicket,
    Submit,
)
from shared.messages.requests.slo import Slo
from shared.service.core import Core, Drop, Effect, Send
from tests.chaos.checker.fold import refold
from tests.chaos.resp import encode as command

STATE = streams.state("queue-manager").encode()
SUBMIT = Submit(
    request_id="r", gateway="g", model="smollm2-135m", slo=Slo(name="interactive"), prompt_tokens=3, max_tokens=5
)


def cores() -> dict[str, tuple[str, Core]]:
    return {
        "queue-manager": (streams.QUEUE, QueueManagerCore(ClusterConfig())),
        "kv-manager": (streams.KV, KvManagerCore()),
    }


def entry(entry_id: bytes, message: Message) -> bytes:
    return command(b"XADD", streams.QUEUE.encode(), entry_id, FIELD, encode(message))


def batch(committed: bytes, effects: list[Effect], *, first_id: int = 9_000, mark: float | None = None) -> bytes:
    """As COMMIT leaves it in the log."""
    parts = [command(b"MULTI")]
    for number, effect in enumerate(effects):
        if isinstance(effect, Send):
            parts.append(
                command(b"XADD", effect.stream.encode(), b"%d-%d" % (first_id, number), FIELD, encode(effect.message))
            )
        elif isinstance(effect, Drop):
            parts.append(command(b"DEL", effect.key.encode()))
    if mark is not None:
        parts.append(command(b"HSET", STATE, b"clock:" + committed, repr(mark).encode()))
    parts += [command(b"HSET", STATE, b"committed", committed), command(b"EXEC")]
    return b"".join(parts)


def sent(*messages: tuple[AnyMessage, float]) -> list[list[Effect]]:
    """What the queue manager answers, message by message."""
    core = QueueManagerCore(ClusterConfig())
    return [core.handle(message, now) for message, now in messages]


def found(log: bytes) -> list[tuple[str, str]]:
    """Differences where the gateways' token streams are there from the start."""
    mark = encode(GatewayBeat(gateway="g"))
    opened = [command(b"XADD", streams.tokens(name).encode(), b"1-0", FIELD, mark) for name in ("g", "other")]
    return [(one.committed, one.what.partition(":")[0]) for one in refold(b"".join(opened) + log, cores())]


def test_what_was_sent_is_what_the_inbox_says() -> None:
    first, second = sent((SUBMIT, 5.0), (Cancel(request_id="r"), 6.0))
    assert [type(effect) for effect in first] == [Send]
    log = entry(b"5000-0", SUBMIT) + batch(b"5000-0", first) + entry(b"6000-0", Cancel(request_id="r"))
    assert found(log + batch(b"6000-0", second)) == []


def test_one_batch_of_several_entries_and_a_tick_of_the_driver() -> None:
    first, second = sent((SUBMIT, 5.0), (GatewayBeat(gateway="g"), 6.0))
    tick = Send(streams.QUEUE, Tick())
    log = entry(b"5000-0", SUBMIT) + entry(b"6000-0", GatewayBeat(gateway="g"))
    assert found(log + batch(b"6000-0", [*first, *second, tick])) == []


@pytest.mark.parametrize(
    ("times", "what"),
    [(0, "did not send Send to treadle"), (2, "sent to treadle")],
)
def test_an_effect_that_is_missing_or_doubled(times: int, what: str) -> None:
    [first] = sent((SUBMIT, 5.0))
    log = entry(b"5000-0", SUBMIT) + batch(b"5000-0", first * times)
    assert found(log) == [("5000-0", what)]


def test_a_node_is_told_of_an_image_that_nobody_will_fetch() -> None:
    """It was handed over and given up; its key is no matter of Redis."""
    ticket = ImageTicket("n", "http://n:9400/images/v1/e-1", "secret", 1 << 20)
    image = EvictedRequest("gone", 0, output_tokens=2, kv_tokens=5, kv_at=HANDED_OVER, image=ticket)
    up, evicted = NodeUp(epoch="e", known=NodeState("n", "m")), Evicted(node="n", epoch="e", requests=[image])
    first, second = sent((up, 5.0), (evicted, 5.1))
    assert second == [
        Send(streams.node_inbox("n"), Abort(requests=[Attempt("gone", 0)]), max_entries=streams.MAX_NODE_INBOX)
    ]
    log = entry(b"5000-0", up) + batch(b"5000-0", first) + entry(b"5100-0", evicted)
    assert found(log + batch(b"5100-0", second)) == []
    assert found(log + batch(b"5100-0", [])) == [("5100-0", "did not send Send to treadle")]


def test_an_entry_that_was_set_aside_is_left_out() -> None:
    aside = command(b"HSET", STATE, b"aside:5000-0", b"it made the core raise")
    assert found(entry(b"5000-0", SUBMIT) + aside + batch(b"5000-0", [])) == []


def test_a_clock_that_was_set_is_read_as_the_service_read_it() -> None:
    # the tick is read 0.1 s behind the submit; by its id alone it would be 10 minutes later, when there is news to tell
    first, second = sent((SUBMIT, 5.0), (Tick(), 5.1))
    assert second == []
    log = entry(b"5000-0", SUBMIT) + batch(b"5000-0", first) + entry(b"605100-0", Tick())
    assert found(log + batch(b"605100-0", second, mark=-600.0)) == []
    assert found(log + batch(b"605100-0", second)) == [("605100-0", "did not send Send to treadle")]
