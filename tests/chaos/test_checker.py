"""The checkers find what is planted in a history, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from tests.chaos.checker.check import judge, report
from tests.chaos.checker.secrecy import search
from tests.chaos.history import Ask, Heard, History, Leftover, LifeOf, Request, Sample
from tests.chaos.planted import MIB, TOKENS, answered, committed, enqueued, fault, found, led, right, told


def with_request(request: Request) -> History:
    return replace(right(), requests=[request])


def test_a_history_in_which_all_is_right() -> None:
    history = right()
    assert found(history) == []
    assert report(history, []) == {
        "faults": {},
        "requests": 1,
        "tokens_checked": 4,
        "violations": {"I1": 0, "I2": 0, "I3": 0, "I4": 0, "I5": 0, "I6": 0, "I7": 0, "I8": 0},
        "recovery_s": {"p50": None, "max": {}},
    }


# --- I1 ---------------------------------------------------------------------------------------------------------------


def test_a_request_that_never_ended() -> None:
    request = answered()
    request.heard, request.end, request.ended_s = request.heard[:2], "silence", 179.0
    assert found(with_request(request)) == ["I1 never ended"]


def test_a_request_that_ended_twice() -> None:
    request = answered()
    request.heard.append(Heard(10.6, is_done=True))
    assert found(with_request(request)) == ["I1 ended 2 times, or went on behind its end"]


def test_tokens_behind_the_end() -> None:
    request = answered()
    request.heard = [*request.heard[:-1], Heard(10.5, is_done=True), Heard(10.6, num_tokens=4)]
    assert found(with_request(request)) == ["I1 ended 1 times, or went on behind its end"]


def test_a_stream_that_closed_without_an_end() -> None:
    request = answered()
    request.heard = [
        msgspec.structs.replace(heard, finish_reason=None) if heard.finish_reason else heard for heard in request.heard
    ]
    assert found(with_request(request)) == ["I1 its stream closed without an end"]


def test_an_accepted_request_that_was_given_up() -> None:
    request = answered()
    request.heard, request.end, request.why = [*request.heard[:2], Heard(11.0, error="lost")], "error", "lost"
    assert found(with_request(request)) == ["I1 was accepted and given up: lost"]


@pytest.mark.parametrize(("status", "wrong"), [(429, []), (503, []), (500, ["I1 failed with status 500: why"])])
def test_a_refusal_is_an_end_and_a_failure_is_none(status: int, wrong: list[str]) -> None:
    request = answered(tokens=[])
    request.heard, request.status, request.end, request.why = [], status, "refused", "why"
    assert found(with_request(request)) == wrong


def test_a_broken_connection_is_an_end_where_its_gateway_died() -> None:
    request = answered()
    request.heard, request.end, request.why = request.heard[:2], "broken", "reset"
    assert found(with_request(request)) == ["I1 its connection broke, and its gateway lives: reset"]
    dead = LifeOf(member="gateway-a", pid=1, began_s=0.0, ended_s=10.55, status=-9)
    next_life = LifeOf(member="gateway-a", pid=2, began_s=11.0)
    assert found(replace(with_request(request), lives=[dead, next_life])) == []
    by_itself = LifeOf(member="gateway-a", pid=1, began_s=0.0, ended_s=10.55, status=1, was_ours=False)
    assert found(replace(with_request(request), lives=[by_itself, next_life])) != []


def test_a_gateway_that_says_that_it_stops_stops() -> None:
    request, why = answered(), "the gateway is shutting down; ask again"
    request.heard, request.end, request.why = [*request.heard[:2], Heard(11.0, error=why)], "error", why
    assert found(with_request(request)) == [f"I1 its gateway said that it stops, and lives: {why}"]
    stopped = LifeOf(member="gateway-a", pid=1, began_s=0.0, ended_s=13.5, status=0)
    assert found(replace(with_request(request), lives=[stopped])) == []


def test_a_request_that_took_longer_than_its_deadline_and_15_s() -> None:
    request = answered()
    request.ended_s = request.sent_s + 60.5
    assert found(with_request(request)) == ["I1 took 60.5 s, 0.0 s of them while something was broken on purpose"]


def test_time_in_which_something_was_broken_on_purpose_does_not_count() -> None:
    request = answered()
    request.ended_s = request.sent_s + 61.0
    history = replace(with_request(request), faults=[fault("engine-hangs", 12.0, 18.0)])
    assert found(history) == []
    request.ended_s = request.sent_s + 66.1
    assert found(history) == ["I1 took 66.1 s, 6.0 s of them while something was broken on purpose"]


# --- I2 ---------------------------------------------------------------------------------------------------------------


def test_a_token_that_was_lost() -> None:
    request = answered(tokens=["one", " three", " four"])
    request.heard[-2] = Heard(10.5, num_tokens=4)
    assert found(with_request(request)) == [
        "I2 brought 3 tokens of 4, from place 1 on: [' three', ' four'] for [' two', ' three', ' four']"
    ]


def test_a_token_that_was_doubled() -> None:
    request = answered(tokens=["one", " two", " two", " three"])
    assert found(with_request(request)) == [
        "I2 other tokens, from place 2 on: [' two', ' three'] for [' three', ' four']"
    ]


def test_a_token_that_was_changed() -> None:
    request = answered(tokens=["one", " two", " 3", " four"])
    assert found(with_request(request)) == ["I2 other tokens, from place 2 on: [' 3', ' four'] for [' three', ' four']"]


def test_a_count_of_the_server_that_is_wrong() -> None:
    request = answered()
    request.heard[-2] = Heard(10.5, num_tokens=5)
    assert found(with_request(request)) == ["I2 has 5 tokens and was asked for 4"]


def test_a_cancelled_answer_is_the_beginning_of_the_undisturbed_one() -> None:
    request = answered(tokens=TOKENS[:2])
    request.heard, request.end = request.heard[:2], "cancelled"
    assert found(with_request(request)) == []
    request = answered(tokens=["one", " 2"])
    request.heard, request.end = request.heard[:2], "cancelled"
    assert found(with_request(request)) == ["I2 other tokens, from place 1 on: [' 2'] for [' two']"]


def test_text_without_tokens_is_compared_as_text() -> None:
    ask = Ask("k", "tiny", "hello", 3, 0.0, 0, wants_tokens=False)
    assert found(with_request(answered(ask, TOKENS[:3]))) == []
    assert found(with_request(answered(ask, ["one", " two", " 3"]))) == [
        "I2 other text from character 8 on: '3' for 'three four'"
    ]


# --- I3 ---------------------------------------------------------------------------------------------------------------


def test_a_batch_that_was_committed_twice() -> None:
    history = right()
    history.entries.append(committed(6, "6-0"))
    assert found(history) == ["I3 treadle:state:queue-manager: committed 6-0 behind 6-0"]


def test_a_request_that_was_enqueued_twice() -> None:
    history = right()
    history.entries.append(enqueued(6))
    assert found(history) == ["I3 request r, attempt 0, was enqueued 2 times"]


def test_a_request_that_was_evicted_is_enqueued_again() -> None:
    history = right()
    history.entries += [told(6, "evicted"), enqueued(7), told(8, "pulled")]
    assert found(history) == []


def test_a_request_that_was_pulled_twice_of_one_entry() -> None:
    history = right()
    history.entries.append(told(6, "pulled"))
    assert found(history) == ["I3 request r, attempt 0, was pulled 2 times of 1 entries"]


def test_entries_that_a_fault_doubled_are_not_the_clusters() -> None:
    doubling = fault("doubled-entries", 20.0, 21.0)
    doubling.injected = ["treadle:group:g 6-0"]
    history = replace(right(), faults=[doubling])
    history.entries += [enqueued(6), told(7, "pulled")]
    assert found(history) == []


# --- I4, I6, I7 -------------------------------------------------------------------------------------------------------


def test_what_is_left_is_a_disagreement_or_a_leak_of_keys() -> None:
    left = [
        Leftover(at_s=75.0, where="queue-manager", what="1 request"),
        Leftover(at_s=75.0, where="keys", what="1 of treadle:req:*"),
    ]
    assert found(replace(right(), leftovers=left)) == [
        "I4 queue-manager still has: 1 request",
        "I6 keys are left: 1 of treadle:req:*",
    ]


def test_memory_and_descriptors_that_do_not_return() -> None:
    history = right()
    last = history.resources[1]
    last.memory_bytes["gateway-a"], last.descriptors["gateway-a"] = 106 * MIB, 52
    last.memory_bytes["node-0/engine"], last.redis_bytes = 574 * MIB, 2 * MIB + (128 << 10)
    history.resources[0].memory_bytes["node-0"], last.memory_bytes["node-0"] = 100 * MIB, 110 * MIB
    assert found(history) == []
    last.memory_bytes["gateway-a"], last.descriptors["gateway-a"] = 107 * MIB, 53
    last.memory_bytes["node-0/engine"], last.redis_bytes = 575 * MIB, 3 * MIB
    last.memory_bytes["node-0"] = 111 * MIB
    assert found(history) == [
        "I6 gateway-a has 107 MiB, and had 100 MiB",
        "I6 node-0/engine has 575 MiB, and had 500 MiB",
        "I6 node-0 has 111 MiB, and had 100 MiB",
        "I6 gateway-a has 53 descriptors, and had 40",
        "I6 redis holds 3145728 bytes, and held 2097152",
    ]


def test_a_secret_in_a_log() -> None:
    line = '{"event": "sent", "headers": "Bearer sk-1"}'
    secrets = list(search("the log of gateway-a", line, {"an API key": "sk-1", "a prompt": "hello"}))
    assert found(replace(right(), secrets=secrets)) == ["I7 an API key stands in the log of gateway-a"]


# --- I5 ---------------------------------------------------------------------------------------------------------------


def without_leader(begin_s: float, end_s: float) -> list[Sample]:
    """The queue manager has no leader for a while."""
    return [
        sample
        if sample.member != "queue-manager" or not begin_s <= sample.at_s < end_s
        else led(sample.at_s, is_led=False)
        for sample in right().samples
    ]


def test_a_leader_that_is_late() -> None:
    assert found(replace(right(), samples=without_leader(20.0, 28.0))) == []
    assert found(replace(right(), samples=without_leader(20.0, 35.0))) == [
        "I5 queue-manager: no leader for 16.0 s after all it needs was back"
    ]


def test_a_leader_may_wait_for_what_it_depends_on() -> None:
    faults = [fault("stop-redis", 20.0, 30.0)]
    assert found(replace(right(), faults=faults, samples=without_leader(20.0, 35.0))) == []


def test_a_leader_that_never_comes_back() -> None:
    assert found(replace(right(), samples=without_leader(40.0, 70.0))) == [
        "I5 queue-manager: no leader for 20.0 s after all it needs was back"
    ]


def test_a_cluster_that_serves_no_more() -> None:
    broken = fault("kill-pair", 20.0, 20.0)
    broken.whole_s = None
    assert found(replace(right(), faults=[broken])) == ["I5 the cluster did not serve again after kill-pair ()"]


# --- I8 ---------------------------------------------------------------------------------------------------------------


def test_an_outage_without_its_alert() -> None:
    assert found(replace(right(), faults=[fault(ended_s=24.0)])) == [
        "I8 kill-redis of 4.0 s did not raise TreadleNoLeader"
    ]
    assert found(replace(right(), faults=[fault(ended_s=22.0)])) == []  # too short to be seen for certain


def test_an_alert_that_comes_and_goes() -> None:
    assert found(replace(right(), faults=[fault()], samples=without_leader(21.0, 26.0))) == []


def test_an_alert_that_stays() -> None:
    faults = [fault("kill-redis", 5.0, 9.0)]
    violations = [
        one for one in found(replace(right(), faults=faults, samples=without_leader(6.0, 60.0))) if "I8" in one
    ]
    assert violations == ["I8 TreadleNoLeader stays, 30 s after kill-redis"]


def test_a_verdict_counts_by_invariant_and_recoveries_by_kind() -> None:
    history = replace(right(), faults=[fault(ended_s=24.0), fault("kill-node", 30.0, 30.0)])
    result = report(history, judge(history))
    assert result["violations"]["I8"] == 1
    assert result["faults"] == {"kill-node": 1, "kill-redis": 1}
    assert result["recovery_s"] == {"p50": 1.0, "max": {"kill-node": 1.0, "kill-redis": 1.0}}
