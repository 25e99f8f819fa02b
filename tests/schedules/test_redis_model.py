"""The model of Redis does what the scripts do, and comes back as it was some time ago."""

from __future__ import annotations

import pytest

from shared.bus import streams
from shared.messages.requests.payload import Payload, Sampling
from shared.messages.requests.requests import Attempt, Cancel, Enqueued, GatewayBeat, Pulled, Submit
from shared.messages.requests.slo import Slo
from shared.service.core import Drop, Effect, Send
from tests.schedules.agenda import Agenda
from tests.schedules.keyspace import NO_ID
from tests.schedules.redis_model import FencedError, LostCommitsError, RedisFullError, RedisModel

GROUP = streams.group("g0")
TOKENS = streams.tokens("gw")
BEAT = GatewayBeat(gateway="gw")


def entry(name: str) -> Enqueued:
    return Enqueued(request_id=name, attempt=0, gateway="gw")


def submission(attempt: int) -> tuple[Payload, Submit]:
    payload = Payload("r0", attempt, "gw", "a", [1], Sampling(max_tokens=1))
    submit = Submit(
        request_id="r0", gateway="gw", model="a", slo=Slo("batch"), prompt_tokens=1, max_tokens=1, attempt=attempt
    )
    return payload, submit


@pytest.fixture
def agenda() -> Agenda:
    return Agenda()


@pytest.fixture
def redis(agenda: Agenda) -> RedisModel:
    return RedisModel(agenda)


def test_ids_go_on_where_the_clock_stands_still_or_steps_back(redis: RedisModel) -> None:
    first = redis.add((TOKENS, BEAT))
    redis.clock_step_s = -600.0
    assert redis.add((TOKENS, BEAT)) == (first[0], first[1] + 1)


def test_a_pull_takes_each_entry_once_and_says_so(redis: RedisModel) -> None:
    redis.submit(*submission(0))
    redis.add((GROUP, entry("r0")), (GROUP, entry("r1")))
    taken = redis.pull("g0", 5, "n0", "n0-1", 1)
    assert [(enqueued.request_id, payload is not None) for _, enqueued, payload in taken] == [
        ("r0", True),
        ("r1", False),
    ]
    told = redis.read(streams.QUEUE, NO_ID, 9)[-1][1]
    assert told == Pulled(node="n0", epoch="n0-1", group="g0", requests=[Attempt("r0", 0), Attempt("r1", 0)], number=1)
    assert redis.pull("g0", 5, "n0", "n0-1", 1) == []
    assert redis.keys.streams[GROUP].pending == {entry_id: "n0-1" for entry_id, _, _ in taken}


def test_the_stream_of_a_gateway_that_is_gone_is_not_made_again(redis: RedisModel) -> None:
    redis.publish([(TOKENS, BEAT)], [], [])
    assert redis.last_id(TOKENS) is None


def test_a_first_attempt_is_refused_where_there_is_no_memory(redis: RedisModel) -> None:
    redis.is_full = True
    with pytest.raises(RedisFullError):
        redis.submit(*submission(0))
    redis.submit(*submission(1))
    redis.release("r0", Cancel(request_id="r0"))
    assert redis.keys.values == {}


def test_the_tail_that_is_lost_is_lost_of_every_key(redis: RedisModel) -> None:
    redis.submit(*submission(0))
    redis.add((GROUP, entry("r0")))
    kept = redis.num_logged
    redis.pull("g0", 1, "n0", "n0-1", 1)
    redis.release("r0", None)
    redis.stop()
    redis.start(kept)
    assert redis.run_id == 2
    assert [message for _, message in redis.read(streams.QUEUE, NO_ID, 9)] == [submission(0)[1]]
    assert redis.keys.values[streams.payload("r0")] == submission(0)[0]
    assert len(redis.pull("g0", 1, "n1", "n1-1", 1)) == 1


def test_a_standby_leads_when_it_has_seen_one_sign_for_long_enough(redis: RedisModel) -> None:
    leads, holder = redis.acquire("queue", "a", "")
    assert leads
    leads, sign = redis.acquire("queue", "b", "")
    assert not leads
    redis.renew("queue", holder)
    assert redis.acquire("queue", "b", sign)[0] is False
    _, sign = redis.acquire("queue", "b", "")
    assert redis.acquire("queue", "b", sign) == (True, "b#2")
    with pytest.raises(FencedError):
        redis.commit("queue", holder, streams.QUEUE, NO_ID, None, [], {})


def test_a_commit_sends_all_or_nothing(redis: RedisModel) -> None:
    _, holder = redis.acquire("queue", "a", "")
    read = redis.add((streams.QUEUE, BEAT))
    effects: list[Effect] = [Send(GROUP, entry("r0")), Send(TOKENS, BEAT, to_existing=True), Drop(GROUP)]
    redis.commit("queue", holder, streams.QUEUE, NO_ID, (read, BEAT), effects, {})
    assert set(redis.keys.streams) == {streams.QUEUE}
    with pytest.raises(LostCommitsError):
        redis.commit("queue", holder, streams.QUEUE, NO_ID, None, [Send(GROUP, entry("r1"))], {})
    for lost in (((read[0] + 1, 0), BEAT), (read, entry("r1"))):  # an id that is not there, or has been given twice
        with pytest.raises(LostCommitsError):
            redis.commit("queue", holder, streams.QUEUE, read, lost, [Send(GROUP, entry("r1"))], {})
    with pytest.raises(LostCommitsError):
        redis.save("queue", holder, streams.QUEUE, NO_ID, (read, b"", 0.0, 0.0), [])
    assert GROUP not in redis.keys.streams
