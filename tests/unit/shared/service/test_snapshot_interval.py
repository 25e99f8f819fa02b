"""How often a driver writes the whole state of its core."""

from __future__ import annotations

import pytest

from shared.service.driver import SNAPSHOT_EVERY_ENTRIES, snapshot_interval


@pytest.mark.parametrize(
    ("num_bytes", "num_entries"),
    [(0, SNAPSHOT_EVERY_ENTRIES), (5_000_000, SNAPSHOT_EVERY_ENTRIES), (87_000_000, 87_000)],
)
def test_a_large_state_is_written_less_often(num_bytes: int, num_entries: int) -> None:
    assert snapshot_interval(num_bytes) == num_entries
