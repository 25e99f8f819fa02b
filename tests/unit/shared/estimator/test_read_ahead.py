"""When KV is worth sending while its prompt is computed; by hand."""

from __future__ import annotations

import pytest

from shared.estimator.read_ahead import pays
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.step_cost import ModelRate, StepCost

MODEL, KV_TOKEN_BYTES = "m", 1_000


def node(*, step_tokens: int = 100, network_bytes_per_s: float = 0.0, kv_bytes_per_s: float = 0.0) -> NodeState:
    rate = ModelRate(MODEL, StepCost(0.1, 0.001, 0.0), 0, KV_TOKEN_BYTES, 0.0)
    return NodeState(
        "p",
        MODEL,
        step_tokens=step_tokens,
        network_bytes_per_s=network_bytes_per_s,
        kv_bytes_per_s=kv_bytes_per_s,
        rates=[rate],
    )


@pytest.mark.parametrize(
    ("prompt_tokens", "network_bytes_per_s", "kv_bytes_per_s", "expected"),
    [
        # what the steps before the last one fill: 200 tokens are 200 kB, 1.9 ms by the network, 0.1 ms by the copy
        (300, 2e5 / 1.9e-3, 2e9, True),
        (300, 2e5 / 1.8e-3, 2e9, False),
        (299, 2e5 / 1.9e-3, 2e9, False),
        # before anything is measured both are taken to be fast, 10 GB/s: 0.2 us a token, so 10,000 tokens are 2 ms
        (10_100, 0.0, 0.0, True),
        (10_099, 0.0, 0.0, False),
        # all of it comes with one step
        (100, 1.0, 1.0, False),
    ],
)
def test_the_pause_has_to_become_shorter_by_more_than_some_messages(
    prompt_tokens: int, network_bytes_per_s: float, kv_bytes_per_s: float, expected: bool
) -> None:
    giver = node(network_bytes_per_s=network_bytes_per_s, kv_bytes_per_s=kv_bytes_per_s)
    assert pays(giver, MODEL, prompt_tokens) is expected


def test_where_nobody_knows_how_large_a_step_is_nothing_is_sent_ahead() -> None:
    assert not pays(node(step_tokens=0, network_bytes_per_s=1.0), MODEL, 1_000)
