"""How much a key may ask for within a minute: requests, and tokens of prompts and answers together.

A request is counted when it comes, whatever becomes of it. Its prompt is counted when it is known; how long its answer
will be is not known before it is there, so that is counted at its end, and a key that got more than it had waits longer
before its next one. Of a request that got no token nothing is counted but the request.

All gateways' processes take from the same buckets (`gateway.tenants.shared_bucket`); what this one has to tell of them,
and hears, is carried by `gateway.tenants.rate_exchange`. There is a pair of buckets for each key with a limit, and none
for a key that is gone. Pure: time comes in with each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from gateway.openai.errors import errors
from gateway.tenants.auth import Client, KeyRing
from gateway.tenants.shared_bucket import LATELY_S, RateVerdict, SharedBucket


@dataclass
class _Buckets:
    requests: SharedBucket | None
    tokens: SharedBucket | None


@dataclass(frozen=True, slots=True)
class DueRate:
    """A bucket of which there is something to tell."""

    what: str
    key_id: bytes
    bucket: SharedBucket


class Rates:
    """What each key has left."""

    def __init__(self) -> None:
        self._keys: dict[bytes, _Buckets] = {}
        self._due: dict[tuple[bytes, str], DueRate] = {}  # the one that has waited longest comes first
        self.is_alone = True
        """Redis cannot be asked, so this process goes by what it knows."""
        self.is_urgent = False
        """Something is to be told at once."""

    @property
    def num_due(self) -> int:
        """Buckets of which there is something to tell."""
        return len(self._due)

    def enter(self, client: Client, now: float, *, may_wait: bool = False) -> bool:
        """Count a request; `ApiError` 429 where it is one too many, or its key owes tokens.

        False where that is not known before the next telling; only a caller that ``may_wait`` for it hears that.
        """
        buckets = self._of(client, now)
        if buckets.requests is not None:
            verdict = buckets.requests.verdict(1, now, is_alone=self.is_alone)
            if not self._goes_on(client, "requests", buckets.requests, verdict, (1, now), may_wait=may_wait):
                return False
        if buckets.tokens is not None:
            verdict = buckets.tokens.has(1, now, is_alone=self.is_alone)
            if not self._goes_on(client, "tokens", buckets.tokens, verdict, (1, now), may_wait=may_wait):
                return False
        if buckets.requests is not None:
            self._take(client, "requests", buckets.requests, 1, now)
        return True

    def take_prompt(self, client: Client, num_tokens: int, now: float, *, may_wait: bool = False) -> bool:
        """Count a prompt; `ApiError` 429 where there are fewer tokens left. One that never fits waits for all.

        False as `enter` has it.
        """
        tokens = self._of(client, now).tokens
        if tokens is None:
            return True
        verdict = tokens.verdict(num_tokens, now, is_alone=self.is_alone)
        if not self._goes_on(client, "tokens", tokens, verdict, (num_tokens, now), may_wait=may_wait):
            return False
        self._take(client, "tokens", tokens, num_tokens, now)
        return True

    def settle(self, client: Client, num_prompt_tokens: int, num_output_tokens: int, now: float) -> None:
        """Count an answer that is over; where no token of it came, its prompt is given back."""
        tokens = self._keys.get(client.key_id, _NO_LIMITS).tokens  # its key may be gone by now
        if tokens is not None and client.tokens_per_minute is not None:
            self._take(client, "tokens", tokens, num_output_tokens or -num_prompt_tokens, now)

    def headers(self, client: Client, now: float) -> dict[str, str]:
        """What is left, as OpenAI tells it; empty for a key without limits, or that has not asked for an answer yet."""
        told: dict[str, str] = {}
        buckets = self._keys.get(client.key_id, _NO_LIMITS)
        for name, bucket in (("requests", buckets.requests), ("tokens", buckets.tokens)):
            if bucket is not None:
                told[f"x-ratelimit-limit-{name}"] = str(bucket.per_minute)
                told[f"x-ratelimit-remaining-{name}"] = str(max(0, int(bucket.level(now))))
                told[f"x-ratelimit-reset-{name}"] = f"{bucket.full_s(now):.3f}s"
        return told

    def keep(self, ring: KeyRing) -> None:
        """Other keys hold from now on: those that are gone are forgotten."""
        self._keys = {key_id: buckets for key_id, buckets in self._keys.items() if ring.has(key_id)}
        self._due = {name: due for name, due in self._due.items() if ring.has(due.key_id)}

    # --- telling --------------------------------------------------------------------------------------------------

    def due(self, num_buckets: int) -> list[DueRate]:
        """Of as many buckets as may be told of at a time, those that have waited longest."""
        return list(islice(self._due.values(), num_buckets))

    def told(self, told: Sequence[DueRate]) -> None:
        """These were told of, or could not be: where there is more to tell, it is due behind the others."""
        for due in told:
            if self._due.get((due.key_id, due.what)) is due:
                del self._due[due.key_id, due.what]
                if not due.bucket.is_settled:
                    self._due[due.key_id, due.what] = due

    def _goes_on(
        self,
        client: Client,
        what: str,
        bucket: SharedBucket,
        verdict: RateVerdict,
        wish: tuple[int, float],
        *,
        may_wait: bool,
    ) -> bool:
        if verdict is RateVerdict.GOES_ON:
            return True
        if verdict is RateVerdict.ASKS and may_wait:
            bucket.ask()
            self.is_urgent = True
            self._note_due(client, what, bucket)
            return False
        wait_s = bucket.wait_s(*wish) or LATELY_S
        raise errors.too_many_a_minute(what, bucket.per_minute, wait_s)

    def _take(self, client: Client, what: str, bucket: SharedBucket, amount: int, now: float) -> None:
        bucket.take(amount, now)
        if bucket.is_urgent(now):
            self.is_urgent = True
        self._note_due(client, what, bucket)

    def _note_due(self, client: Client, what: str, bucket: SharedBucket) -> None:
        due = self._due.get((client.key_id, what))
        if due is None or due.bucket is not bucket:
            self._due[client.key_id, what] = DueRate(what, client.key_id, bucket)

    def _of(self, client: Client, now: float) -> _Buckets:
        if client.requests_per_minute is None and client.tokens_per_minute is None:
            return _NO_LIMITS
        buckets = self._keys.setdefault(client.key_id, _Buckets(None, None))
        buckets.requests = _fitting(buckets.requests, client.requests_per_minute, now)
        buckets.tokens = _fitting(buckets.tokens, client.tokens_per_minute, now)
        return buckets


_NO_LIMITS = _Buckets(None, None)


def _fitting(bucket: SharedBucket | None, per_minute: int | None, now: float) -> SharedBucket | None:
    """The bucket itself, unless its key has another limit since."""
    if per_minute is None:
        return None
    return bucket if bucket is not None and bucket.per_minute == per_minute else SharedBucket(per_minute, now)
