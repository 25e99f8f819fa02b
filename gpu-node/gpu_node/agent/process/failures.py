"""Requests that fail on this node: each is logged once, with the reason that its client is not told."""

from __future__ import annotations

import structlog

from gpu_node.agent.decisions.actions import Publish

log = structlog.get_logger()


def log_failures(publish: Publish, model: str) -> None:
    """What ``publish`` tells gateways of failures, of requests for ``model``."""
    if all(finished.reason != "error" for finished in publish.finished):  # a failure ends its request
        return
    for tokens in publish.tokens.values():
        for chunk in tokens.chunks:
            if chunk.finish_reason == "error":
                log.error(
                    "generation_failed",
                    request_id=chunk.request_id,
                    attempt=chunk.attempt,
                    model=model,
                    num_tokens=chunk.index,
                    error=chunk.error,
                )
