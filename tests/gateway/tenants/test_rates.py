"""What a key may ask for within a minute: buckets by hand, any schedule against its bound, a gateway that counts."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.openai.errors.errors import ApiError
from gateway.tenants.auth import Client, KeyRing
from gateway.tenants.bucket import MINUTE_S, TokenBucket
from gateway.tenants.rates import Rates
from shared.config.services.clients import ApiKey
from tests.gateway.conftest import Gateway, GatewayFactory
from tests.gateway.http.test_refusals import refused
from tests.gateway.memory_queue import saying

TEXT = "/v1/completions"
BODY = {"model": "tiny", "prompt": "abcd", "max_tokens": 4}
KEYS = [
    {"key": "few", "tenant": "a", "requests_per_minute": 2},
    {"key": "short", "tenant": "a", "tokens_per_minute": 10},
    {"key": "free", "tenant": "a"},
]
FEW, SHORT, FREE = ({"Authorization": f"Bearer {key}"} for key in ("few", "short", "free"))


def test_a_bucket_by_hand() -> None:
    bucket = TokenBucket(60, now=100.0)  # one a second
    assert (bucket.level(100.0), bucket.wait_s(60, 100.0), bucket.wait_s(61, 100.0)) == (60, 0, 0)
    bucket.take(60, 100.0)
    assert (bucket.level(100.0), bucket.wait_s(1, 100.0), bucket.full_s(100.0)) == (0, 1, 60)
    assert bucket.level(110.0) == 10
    bucket.take(40, 110.0)  # an answer that was longer than what was left
    assert (bucket.level(110.0), bucket.wait_s(1, 110.0)) == (-30, 31)
    bucket.take(-5, 110.0)
    assert bucket.level(110.0) == -25
    assert bucket.level(1000.0) == 60


def test_less_than_one_a_minute() -> None:
    bucket = TokenBucket(0.5, now=0.0)
    bucket.take(1, 0.0)
    assert bucket.wait_s(1, 0.0) == 120


@given(
    per_minute=st.floats(0.5, 600),
    steps=st.lists(st.tuples(st.floats(0, 30), st.integers(1, 40)), max_size=40),
)
def test_no_more_is_let_through_than_a_minute_s_worth_and_what_came_since(
    per_minute: float, steps: list[tuple[float, int]]
) -> None:
    bucket, now, taken, size = TokenBucket(per_minute, 0.0), 0.0, 0.0, max(per_minute, 1.0)
    for pause_s, amount in steps:
        now += pause_s
        wait_s = bucket.wait_s(amount, now)
        if wait_s > 0:
            assert bucket.wait_s(amount, now + wait_s + 1e-6) == 0, "it says how long to wait"
            now += wait_s + 1e-6
        bucket.take(amount, now)
        taken += amount
        # the last one may have been larger than all that a bucket holds
        assert taken <= size + now * per_minute / MINUTE_S + max(0.0, amount - size) * len(steps) + 1e-3


def client(requests_per_minute: int | None = None, tokens_per_minute: int | None = None) -> Client:
    return Client("a", None, None, requests_per_minute, tokens_per_minute, key_id=b"k")


def test_a_request_is_counted_whatever_becomes_of_it() -> None:
    rates, two = Rates(), client(requests_per_minute=2)
    rates.enter(two, 0.0)
    rates.enter(two, 0.0)
    with pytest.raises(ApiError) as error:
        rates.enter(two, 0.0)
    assert (error.value.status, error.value.code, error.value.headers["Retry-After"]) == (
        429,
        "rate_limit_exceeded",
        "30",
    )
    rates.enter(two, 30.0)


def test_an_answer_is_counted_at_its_end_and_nothing_where_none_came() -> None:
    rates, ten = Rates(), client(tokens_per_minute=60)
    rates.enter(ten, 0.0)
    rates.take_prompt(ten, 50, 0.0)
    with pytest.raises(ApiError):
        rates.take_prompt(ten, 11, 0.0)
    rates.settle(ten, 50, 100, 0.0)  # 90 more than there were
    with pytest.raises(ApiError) as error:
        rates.enter(ten, 0.0)
    assert error.value.headers["Retry-After"] == "91"
    other = Rates()
    other.take_prompt(ten, 50, 0.0)
    other.settle(ten, 50, 0, 0.0)
    assert other.headers(ten, 0.0) == {
        "x-ratelimit-limit-tokens": "60",
        "x-ratelimit-remaining-tokens": "60",
        "x-ratelimit-reset-tokens": "0.000s",
    }


def test_a_key_that_is_gone_is_forgotten_and_another_limit_begins_anew() -> None:
    rates = Rates()
    ring = KeyRing([ApiKey.model_validate({"key": "few", "tenant": "a", "requests_per_minute": 1})])
    few = ring.authenticate(FEW)
    rates.enter(few, 0.0)
    rates.keep(ring)
    with pytest.raises(ApiError):
        rates.enter(few, 0.0)
    rates.keep(KeyRing([ApiKey.model_validate({"key": "other", "tenant": "a"})]))
    rates.enter(few, 0.0)
    rates.keep(KeyRing([]))
    rates.settle(few, 1, 1, 0.0)  # an answer that outlives its key
    assert rates.headers(few, 0.0) == {}
    more = KeyRing([ApiKey.model_validate({"key": "few", "tenant": "a", "requests_per_minute": 2})])
    rates.enter(more.authenticate(FEW), 0.0)


def test_workers_share_what_the_key_may_have() -> None:
    key = ApiKey.model_validate({"key": "few", "tenant": "a", "requests_per_minute": 2, "max_inflight": 8})
    one = KeyRing([key], num_processes=4).authenticate(FEW)
    assert (one.requests_per_minute, one.max_inflight) == (2, 2), "slots are divided, rates are counted together"


def test_a_request_of_a_batch_costs_its_key_nothing() -> None:
    rates, ten = Rates(), client(tokens_per_minute=60)
    rates.take_prompt(ten, 10, 0.0)
    free = dataclasses.replace(ten, tokens_per_minute=None)
    rates.take_prompt(free, 50, 0.0)
    rates.settle(free, 50, 100, 0.0)
    assert rates.headers(ten, 0.0)["x-ratelimit-remaining-tokens"] == "50"


# --- a gateway --------------------------------------------------------------------------------------------------------


async def answered(gateway: Gateway, headers: dict[str, str], **fields: Any) -> dict[str, str]:
    """The headers of an answer that is there."""
    async with gateway.http.post(TEXT, json=BODY | fields, headers=headers) as response:
        assert response.status == 200
        await response.read()
        return dict(response.headers)


async def test_requests_of_a_key(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying("ab"), keys=KEYS)
    assert (await answered(gateway, FEW))["x-ratelimit-remaining-requests"] == "1"
    status, error, _ = await refused(gateway, TEXT, BODY | {"model": "none"}, **FEW)
    assert status == 404, "a wrong request is one, too"
    status, error, headers = await refused(gateway, TEXT, BODY, **FEW)
    assert (status, error["code"], error["type"]) == (429, "rate_limit_exceeded", "rate_limit_error")
    assert error["message"] == "this API key may have 2 requests a minute here, and has had as many"
    assert (headers["Retry-After"], headers["x-ratelimit-remaining-requests"]) == ("30", "0")
    for _ in range(3):
        assert not [name for name in await answered(gateway, FREE) if name.lower().startswith("x-ratelimit")]


@pytest.mark.parametrize("stream", [False, True])
async def test_tokens_of_a_key(start_gateway: GatewayFactory, stream: bool) -> None:
    gateway = await start_gateway(saying("ab"), keys=KEYS)
    await answered(gateway, SHORT, stream=stream)  # four of the prompt, two and the end
    status, error, headers = await refused(gateway, TEXT, BODY, **SHORT)
    assert (status, error["code"]) == (429, "rate_limit_exceeded")
    assert error["message"] == "this API key may have 10 tokens a minute here, and has had as many"
    assert headers["x-ratelimit-remaining-tokens"] == "3"
    await answered(gateway, SHORT, prompt="a", stream=stream)


async def test_the_slots_of_a_refused_request_are_free(start_gateway: GatewayFactory) -> None:
    gateway = await start_gateway(saying("ab"), keys=KEYS, gateway={"max_inflight": 1})
    await answered(gateway, SHORT)
    await refused(gateway, TEXT, BODY, **SHORT)
    await answered(gateway, FREE)
