"""A node says in its log why a request has failed; its client hears only that it has."""

from __future__ import annotations

import structlog

from gpu_node.agent.decisions.actions import Publish
from gpu_node.agent.process.failures import log_failures
from shared.messages.requests.requests import Chunk, FinishedRequest, Tokens


def test_each_failure_is_logged_with_its_reason_and_nothing_else_is() -> None:
    chunks = [
        Chunk("r0", 1, 7, [], "error", "the model's logits are not finite numbers", is_last=True),
        Chunk("r1", 0, 3, [5], "stop", is_last=True),
        Chunk("r2", 0, 0, [], "refused", "too long", is_last=True),
    ]
    finished = [FinishedRequest(chunk.request_id, chunk.attempt, chunk.finish_reason, 0) for chunk in chunks]
    with structlog.testing.capture_logs() as logs:
        log_failures(Publish(tokens={"gateway-0": Tokens(node="n", chunks=chunks)}, finished=finished), "tiny")
    assert logs == [
        {
            "event": "generation_failed",
            "log_level": "error",
            "request_id": "r0",
            "attempt": 1,
            "model": "tiny",
            "num_tokens": 7,
            "error": "the model's logits are not finite numbers",
        }
    ]
