"""How other nodes reach this one."""

from __future__ import annotations

import pytest

from gpu_node.agent.images.own_address import own_url
from shared.config.config import NODE_HOST_ENV

REDIS = "redis://127.0.0.1:6379/0"


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NODE_HOST_ENV, raising=False)


def test_where_it_listens_on_one_address_it_is_that_one() -> None:
    assert own_url("10.0.0.7", 9404, REDIS) == "http://10.0.0.7:9404"
    assert own_url("fd00::7", 9404, REDIS) == "http://[fd00::7]:9404"


def test_where_it_listens_on_all_it_is_the_one_towards_redis() -> None:
    """Nothing is sent for that: nobody has to be there."""
    assert own_url("0.0.0.0", 9404, "redis://127.0.0.1:1") == "http://127.0.0.1:9404"
    assert own_url("0.0.0.0", 9404, "redis+sentinel://127.0.0.1,10.9.9.9/m") == "http://127.0.0.1:9404"
    assert own_url("::", 9404, "unix:///run/redis.sock") == "http://127.0.0.1:9404"


def test_what_the_operator_says_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NODE_HOST_ENV, "node-0.example")
    assert own_url("0.0.0.0", 9404, REDIS) == "http://node-0.example:9404"


def test_a_redis_whose_name_is_not_known_leaves_the_loopback() -> None:
    assert own_url("0.0.0.0", 9404, "redis://no.such.name.invalid:6379") == "http://127.0.0.1:9404"
