"""Names of keys: every one below ``treadle:``, and no two alike."""

from __future__ import annotations

import inspect
from itertools import combinations

from shared.bus import streams
from shared.config.config import SERVICES

FIXED = {name: value for name, value in vars(streams).items() if name.isupper() and isinstance(value, str)}
MADE = {
    name: make
    for name, make in vars(streams).items()
    if inspect.isfunction(make) and len(inspect.signature(make).parameters) == 1
}
NAMES = ["a", "b", "node-0", "queue", "state", *SERVICES]


def rates() -> list[str]:
    return [
        streams.rate(what, limit, key) for what in ("requests", "tokens") for limit in (6, 60) for key in ("0", "01")
    ]


def keys() -> list[str]:
    fixed = [value for name, value in FIXED.items() if name != "CONSUMER_GROUP"]
    return fixed + [make(name) for make in MADE.values() for name in NAMES] + rates()


def test_every_maker_of_a_key_is_among_them() -> None:
    makers = {name for name, make in vars(streams).items() if inspect.isfunction(make)}
    assert makers == {*MADE, "rate"}


def test_every_key_is_below_treadle() -> None:
    assert all(key.startswith("treadle:") for key in keys())


def test_no_two_keys_are_alike() -> None:
    for one, other in combinations(keys(), 2):
        assert one != other


def test_a_made_key_ends_with_its_name_so_names_cannot_mix() -> None:
    for make in MADE.values():
        prefix = make("")
        assert prefix.count(":") == 2
        assert make("a:b") == prefix + "a:b"
    assert len({make("") for make in MADE.values()}) == len(MADE)


def test_every_rate_is_below_the_pattern_that_a_gateway_may_write() -> None:
    below = streams.RATES.removesuffix("*")
    assert all(key.startswith(below) for key in rates())
    assert not any(make("").startswith(below) for make in MADE.values())


def test_limits_are_in_order() -> None:
    assert streams.MAX_NODE_INBOX < streams.MAX_TOKEN_BACKLOG < streams.MAX_SERVICE_LOG
    step_s = 600  # of Redis's clock
    assert 3 * streams.PAYLOAD_REFRESH_S + step_s < streams.PAYLOAD_TTL_S, "two refreshments may fail"
