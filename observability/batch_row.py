"""The row of batches on the operators' dashboard."""

from __future__ import annotations

from observability.grafana import Panel, Query, Row
from observability.promql import rate

BATCHES = Row(
    "Batches",
    [
        Panel(
            "Requests of batches",
            "Sent and not answered; and those that are not sent yet.",
            "short",
            [
                Query("sum(treadle_batch_requests_inflight)", "sent"),
                Query("sum(treadle_batch_requests_waiting)", "waiting"),
            ],
        ),
        Panel(
            "Answers to them",
            "A second, by what became of the request; refused and retried ones are sent again.",
            "ops",
            [Query(rate("treadle_batch_answers_total", "verdict"), "{{verdict}}")],
        ),
        Panel(
            "Window and time needed",
            "What is left of the window that ends first; what all that waits takes at the rate of the last half hour.",
            "s",
            [
                Query("min(treadle_batch_least_window_seconds)", "left"),
                Query(
                    "sum(treadle_batch_requests_waiting) / "
                    'sum(rate(treadle_batch_answers_total{verdict=~"completed|failed"}[30m]))',
                    "needed",
                ),
            ],
        ),
        Panel(
            "Batches",
            "Open now, and ended in an hour, by how.",
            "short",
            [
                Query("sum(treadle_batches_open)", "open"),
                Query("sum by (status) (increase(treadle_batches_ended_total[1h]))", "{{status}}"),
            ],
        ),
        Panel(
            "Files",
            "Of clients and of results, on the disk of the batch service.",
            "bytes",
            [Query("sum(treadle_batch_stored_bytes)", "stored")],
        ),
    ],
)
