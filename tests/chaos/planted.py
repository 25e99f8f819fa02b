"""A history in which everything is right, and each test of the checkers plants one fault in it."""

from __future__ import annotations

from tests.chaos.checker.check import judge
from tests.chaos.history import Ask, Entry, Fault, Heard, History, LifeOf, Request, Resources, Sample

TOKENS = ["one", " two", " three", " four"]
ASK = Ask("k", "tiny", "hello", 4, 0.0, 0)
MIB = 1 << 20


def answered(ask: Ask = ASK, tokens: list[str] | None = None, number: int = 1) -> Request:
    """A stream that brought its tokens one by one, and ended."""
    said = TOKENS if tokens is None else tokens
    last = len(said) - 1
    heard = [
        Heard(
            10 + place / 10,
            text=token,
            tokens=[token] if ask.wants_tokens else [],
            finish_reason="length" if place == last else None,
        )
        for place, token in enumerate(said)
    ]
    heard += [Heard(10.5, num_tokens=len(said)), Heard(10.5, is_done=True)]
    return Request(
        number=number, gateway="gateway-a", ask=ask, sent_s=9.0, status=200, heard=heard, ended_s=10.6, end="whole"
    )


def entry(order: int, verb: str, key: str, message: dict[str, object] | None = None, **values: str) -> Entry:
    """Of a transaction of its own, in Redis's first life."""
    return Entry(order=order, transaction=order, life=0, verb=verb, key=key, message=message or {}, **values)


def enqueued(order: int, request_id: str = "r", attempt: int = 0) -> Entry:
    """An entry of a group."""
    message: dict[str, object] = {"type": "enqueued", "request_id": request_id, "attempt": attempt}
    return entry(order, "XADD", "treadle:group:g", message, entry_id=f"{order}-0")


def told(order: int, kind: str, request_id: str = "r", attempt: int = 0) -> Entry:
    """An entry of the queue manager's inbox about one request."""
    message: dict[str, object] = {"type": kind, "requests": [{"request_id": request_id, "attempt": attempt}]}
    return entry(order, "XADD", "treadle:queue", message, entry_id=f"{order}-0")


def committed(order: int, value: str) -> Entry:
    """A batch."""
    return entry(order, "HSET", "treadle:state:queue-manager", value=value)


def led(at_s: float, *, is_led: bool = True, member: str = "queue-manager", service: str = "") -> Sample:
    """What a service's instance answers to a scrape."""
    name = f'treadle_lease_held{{service="{service or member}"}}'
    return Sample(at_s=at_s, member=member, metrics={name: float(is_led)})


def right() -> History:
    """Nothing is wrong with this one."""
    services = ("queue-manager", "scheduler", "kv-manager")
    samples = [led(float(second), member=service) for second in range(60) for service in services]
    return History(
        undisturbed={"k": answered()},
        requests=[answered()],
        lives=[LifeOf(member="gateway-a", pid=1, began_s=0.0)],
        entries=[committed(1, "5-0"), enqueued(2), told(3, "pulled"), committed(4, "6-0"), told(5, "finished")],
        samples=samples,
        resources=[
            Resources(
                at_s=at_s,
                when=when,
                memory_bytes={"gateway-a": 100 * MIB, "node-0/engine": 500 * MIB},
                descriptors={"gateway-a": 40},
                redis_bytes=2 * MIB,
            )
            for at_s, when in ((5.0, "start"), (60.0, "end"))
        ],
        stopped_s=60.0,
    )


def fault(kind: str = "kill-redis", began_s: float = 20.0, ended_s: float = 24.0) -> Fault:
    """One that the cluster recovered from."""
    return Fault(kind=kind, targets=[], began_s=began_s, ended_s=ended_s, whole_s=ended_s + 1)


def found(history: History) -> list[str]:
    """What the checkers say, without the number and name of the request."""
    return [f"{violation.invariant} {violation.what.rpartition('): ')[2]}" for violation in judge(history)]
