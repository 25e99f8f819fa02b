"""What `treadle status` says of a gateway that serves with fewer workers than it should have."""

from __future__ import annotations

import pytest

from cli.cluster.processes.process_status import missing_workers

WORKERS = [{"worker": 0, "life": 1}, {"worker": 1, "life": 2}]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"num_ready": 1, "workers": WORKERS}, "1 of 2 workers"),
        ({"num_ready": 2, "workers": WORKERS}, ""),
        ({"num_ready": 2, "workers": [*WORKERS, {"worker": 1, "life": 3}]}, ""),  # one is being replaced
        ({"inflight": 3}, ""),  # a single process
        ({}, ""),  # it does not answer
    ],
)
def test_workers_that_are_missing_are_told(state: dict[str, object], said: str) -> None:
    assert missing_workers(state) == said
