"""KV that goes from node to node: bytes, seconds, and what went wrong."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

BYTES = Counter(
    "treadle_kv_transfer_bytes_total", "KV of requests given to other nodes (`out`), or fetched (`in`)", ["direction"]
)
SECONDS = Histogram(
    "treadle_kv_transfer_seconds",
    "Time to fetch the KV of a request from another node",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
AHEAD_BYTES = Counter(
    "treadle_kv_transfer_ahead_bytes_total",
    "Of KV fetched from other nodes, what came while its prompt was computed there",
)
FAILURES = Counter(
    "treadle_kv_transfer_failures_total",
    "Images that did not go over, or not whole: `expired` and `refused` at the giver; at the node that fetches "
    "`unreachable`, `gone`, `slow`, `truncated`, `damaged`, no `room`, no `turn`, `busy` for too long, `stopped`, "
    "and `unknown`, of which the log has all",
    ["reason"],
)

REASONS = (
    *("expired", "refused", "unreachable", "gone", "slow"),
    *("truncated", "damaged", "room", "turn", "busy", "stopped", "unknown"),
)
for _direction in ("in", "out"):  # series that are there from the start: else rates miss what is counted first
    BYTES.labels(_direction)
for _reason in REASONS:
    FAILURES.labels(_reason)


def count_given(num_bytes: int) -> None:
    """An image has left."""
    BYTES.labels("out").inc(num_bytes)


def count_fetched(num_bytes: int, seconds: float) -> None:
    """An image has come."""
    BYTES.labels("in").inc(num_bytes)
    SECONDS.observe(seconds)


def count_read_ahead(num_bytes: int) -> None:
    """So much of an image that has come was there before it was whole."""
    AHEAD_BYTES.inc(num_bytes)


def count_failure(reason: str) -> None:
    """An image is lost here, or a node asked for one in vain."""
    FAILURES.labels(reason).inc()
