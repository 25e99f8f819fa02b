from __future__ import annotations

from gateway.inflight.bus.released import RELEASED_MEMORY_S, Released


def test_what_was_over_of_late_is_remembered_and_no_longer() -> None:
    released = Released()
    released.note("r0", 10.0)
    released.note("r1", 20.0)
    assert released.recent(10.0 + RELEASED_MEMORY_S) == ["r0", "r1"]
    assert released.recent(15.0 + RELEASED_MEMORY_S) == ["r1"]
    assert released.recent(30.0 + RELEASED_MEMORY_S) == []
