"""Beginnings of prompts that go from one node's cache to another's: what came of each, bytes and seconds."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

FETCHES = Counter(
    "treadle_node_prefix_fetches_total",
    "Prompts whose beginning another node had: `fetched` from there; else computed, since that was `unreachable`, "
    "`refused` it, had it no more (`gone`), was `busy`, or it came too `late` or not whole (`lost`)",
    ["result"],
)
TAKEN_TOKENS = Counter(
    "treadle_node_prefix_tokens_total", "Tokens of prompts whose KV came from another node's cache and went into ours"
)
REFUSED = Counter(
    "treadle_node_prefix_unused_total", "Prefixes that were fetched and that the engine could not use: its log says why"
)
FETCHED_BYTES = Counter("treadle_node_prefix_bytes_total", "KV of beginnings of prompts fetched from other nodes")
SECONDS = Histogram(
    "treadle_node_prefix_fetch_seconds",
    "Time to ask for the beginning of a prompt and to fetch it",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
GIVEN = Counter(
    "treadle_node_prefix_asks_total",
    "Other nodes that asked for the beginning of a prompt: `given`, `gone`, or refused by a `busy` or a `slow` node",
    ["result"],
)

for _result in ("fetched", "unreachable", "refused", "gone", "busy", "late", "lost"):  # series from the start
    FETCHES.labels(_result)
for _result in ("given", "gone", "busy", "slow"):
    GIVEN.labels(_result)


def count_fetch(result: str, num_bytes: int = 0, seconds: float | None = None) -> None:
    """A node was asked."""
    FETCHES.labels(result).inc()
    FETCHED_BYTES.inc(num_bytes)
    if seconds is not None:
        SECONDS.observe(seconds)


def count_taken(num_tokens: int, *, is_refused: bool) -> None:
    """The engine has what was fetched."""
    TAKEN_TOKENS.inc(num_tokens)
    REFUSED.inc(is_refused)


def count_given(result: str) -> None:
    """This node was asked."""
    GIVEN.labels(result).inc()
