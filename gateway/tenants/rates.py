"""How much a key may ask for within a minute: requests, and tokens of prompts and answers together.

A request is counted when it comes, whatever becomes of it. Its prompt is counted when it is known; how long its answer
will be is not known before it is there, so that is counted at its end, and a key that got more than it had waits longer
before its next one. Of a request that got no token nothing is counted but the request.

State is this process's own: gateways and workers count apart, each worker with its part of the limit. There is a pair
of buckets for each key with a limit, and none for a key that is gone. Pure: time comes in with each call.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.openai import errors
from gateway.tenants.auth import Client, KeyRing
from gateway.tenants.bucket import TokenBucket


@dataclass
class _Buckets:
    requests: TokenBucket | None
    tokens: TokenBucket | None


class Rates:
    """What each key has left."""

    def __init__(self) -> None:
        self._keys: dict[bytes, _Buckets] = {}

    def enter(self, client: Client, now: float) -> None:
        """Count a request; `ApiError` 429 where it is one too many, or its key owes tokens."""
        buckets = self._of(client, now)
        if buckets.requests is not None:
            _check(buckets.requests, 1, now, "requests")
        if buckets.tokens is not None:
            _check(buckets.tokens, 1, now, "tokens")
        if buckets.requests is not None:
            buckets.requests.take(1, now)

    def take_prompt(self, client: Client, num_tokens: int, now: float) -> None:
        """Count a prompt; `ApiError` 429 where there are fewer tokens left. One that never fits waits for all."""
        tokens = self._of(client, now).tokens
        if tokens is not None:
            _check(tokens, num_tokens, now, "tokens")
            tokens.take(num_tokens, now)

    def settle(self, client: Client, num_prompt_tokens: int, num_output_tokens: int, now: float) -> None:
        """Count an answer that is over; where no token of it came, its prompt is given back."""
        tokens = self._keys.get(client.key_id, _NO_LIMITS).tokens  # its key may be gone by now
        if tokens is not None:
            tokens.take(num_output_tokens or -num_prompt_tokens, now)

    def headers(self, client: Client, now: float) -> dict[str, str]:
        """What is left, as OpenAI tells it; empty for a key without limits, or that has not asked for an answer yet."""
        told: dict[str, str] = {}
        buckets = self._keys.get(client.key_id, _NO_LIMITS)
        for name, bucket in (("requests", buckets.requests), ("tokens", buckets.tokens)):
            if bucket is not None:
                told[f"x-ratelimit-limit-{name}"] = str(max(1, int(bucket.per_minute)))
                told[f"x-ratelimit-remaining-{name}"] = str(max(0, int(bucket.level(now))))
                told[f"x-ratelimit-reset-{name}"] = f"{bucket.full_s(now):.3f}s"
        return told

    def keep(self, ring: KeyRing) -> None:
        """Other keys hold from now on: those that are gone are forgotten."""
        self._keys = {key_id: buckets for key_id, buckets in self._keys.items() if ring.has(key_id)}

    def _of(self, client: Client, now: float) -> _Buckets:
        if client.requests_per_minute is None and client.tokens_per_minute is None:
            return _NO_LIMITS
        buckets = self._keys.setdefault(client.key_id, _Buckets(None, None))
        buckets.requests = _fitting(buckets.requests, client.requests_per_minute, now)
        buckets.tokens = _fitting(buckets.tokens, client.tokens_per_minute, now)
        return buckets


_NO_LIMITS = _Buckets(None, None)


def _fitting(bucket: TokenBucket | None, per_minute: float | None, now: float) -> TokenBucket | None:
    """The bucket itself, unless its key has another limit since."""
    if per_minute is None:
        return None
    return bucket if bucket is not None and bucket.per_minute == per_minute else TokenBucket(per_minute, now)


def _check(bucket: TokenBucket, amount: float, now: float, what: str) -> None:
    wait_s = bucket.wait_s(amount, now)
    if wait_s > 0:
        raise errors.too_many_a_minute(what, bucket.per_minute, wait_s)
