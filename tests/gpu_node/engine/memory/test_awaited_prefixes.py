"""Requests that wait for their prefix, by hand."""

from __future__ import annotations

from gpu_node.engine.memory.awaited_prefixes import MAX_WAIT_S, AwaitedPrefixes


def test_a_request_waits_until_all_of_its_blocks_are_there() -> None:
    arrivals = AwaitedPrefixes()
    arrivals.expect("a", [b"1", b"2"])
    arrivals.expect("b", [b"2"])
    assert arrivals.is_awaited("a", 10.0)
    assert not arrivals.is_awaited("c", 10.0)
    arrivals.arrived(b"2", 0.01)
    assert not arrivals.is_awaited("b", 10.0)
    assert arrivals.is_awaited("a", 10.1)
    arrivals.arrived(b"1", 0.01)
    assert not arrivals.is_awaited("a", 10.1)
    assert (arrivals.num_late, arrivals.num_waiting) == (0, 0)


def test_nobody_waits_longer_than_the_limit_nor_again_until_the_store_is_quick() -> None:
    arrivals = AwaitedPrefixes()
    arrivals.expect("a", [b"1"])
    assert arrivals.is_awaited("a", 10.0)
    assert not arrivals.is_awaited("a", 10.0 + MAX_WAIT_S)
    assert arrivals.num_late == 1
    arrivals.expect("b", [b"2"])
    assert not arrivals.is_awaited("b", 11.0)
    arrivals.arrived(b"1", 2 * MAX_WAIT_S)
    arrivals.expect("c", [b"3"])
    assert not arrivals.is_awaited("c", 11.0)
    arrivals.arrived(b"2", MAX_WAIT_S)
    arrivals.expect("d", [b"4"])
    assert arrivals.is_awaited("d", 11.0)


def test_who_is_gone_is_forgotten() -> None:
    arrivals = AwaitedPrefixes()
    arrivals.expect("a", [b"1"])
    arrivals.forget("a")
    assert not arrivals.is_awaited("a", 0.0)
    arrivals.forget("a")
