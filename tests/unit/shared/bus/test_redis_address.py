"""Every form of an address of Redis, and what is said of those that are none: never a part that may be secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.bus.redis_address import MAX_HOSTS, AddressError, RedisAddress, Tls, parse_address

SECRET = "s3cr3t-word"


@pytest.mark.parametrize(
    ("url", "address", "place"),
    [
        ("redis://r", RedisAddress(hosts=(("r", 6379),)), "redis://r:6379/0"),
        ("redis://r:1/2", RedisAddress(hosts=(("r", 1),), db=2), "redis://r:1/2"),
        ("redis://r?db=3", RedisAddress(hosts=(("r", 6379),), db=3), "redis://r:6379/3"),
        ("redis://[::1]:7/0", RedisAddress(hosts=(("::1", 7),)), "redis://[::1]:7/0"),
        (f"redis://:{SECRET}@r/0", RedisAddress(hosts=(("r", 6379),), password=SECRET), "redis://r:6379/0"),
        (
            f"redis://gateway:{SECRET}%2F%40@r/0",
            RedisAddress(hosts=(("r", 6379),), username="gateway", password=f"{SECRET}/@"),
            "redis://r:6379/0",
        ),
        ("redis://a:1,b/0", RedisAddress(hosts=(("a", 1), ("b", 6379))), "redis://a:1,b:6379/0"),
        ("rediss://r", RedisAddress(hosts=(("r", 6379),), tls=Tls()), "rediss://r:6379/0"),
        (
            "rediss://r/0?ssl_ca_certs=/ca&ssl_certfile=/c&ssl_keyfile=/k&ssl_check_hostname=no&ssl_cert_reqs=optional",
            RedisAddress(hosts=(("r", 6379),), tls=Tls("/ca", "/c", "/k", "optional", checks_host=False)),
            "rediss://r:6379/0",
        ),
        (
            "redis+sentinel://a,b:7/mymaster",
            RedisAddress(hosts=(("a", 26379), ("b", 7)), service="mymaster"),
            "redis+sentinel://a:26379,b:7/mymaster/0",
        ),
        (
            f"rediss+sentinel://u:{SECRET}@a/m/4?sentinel_username=s&sentinel_password={SECRET}&ssl_ca_certs=/ca",
            RedisAddress(
                hosts=(("a", 26379),),
                service="m",
                db=4,
                username="u",
                password=SECRET,
                sentinel_username="s",
                sentinel_password=SECRET,
                tls=Tls("/ca"),
            ),
            "rediss+sentinel://a:26379/m/4",
        ),
        ("unix:///run/redis.sock?db=1", RedisAddress(socket="/run/redis.sock", db=1), "unix:///run/redis.sock"),
    ],
)
def test_every_form(url: str, address: RedisAddress, place: str) -> None:
    assert parse_address(url) == address
    assert address.place == place
    assert SECRET not in repr(address)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "begins with one of redis, redis+sentinel, rediss, rediss+sentinel, unix"),
        (f"http://:{SECRET}@r", "begins with one of"),
        (f"{SECRET}@r:6379", "begins with one of"),
        ("redis://", "host 1 of the address is no HOST:PORT"),
        ("redis://a,,b", "host 2 of the address is no HOST:PORT"),
        ("redis://r:70000", "host 1 of the address is no HOST:PORT"),
        (f"redis://:a/{SECRET}@r:x", "host 1 of the address is no HOST:PORT"),
        (f"redis://:{SECRET}#@r", "percent-encode"),
        (f"redis://:a?{SECRET}@r", "an option that is not known"),
        (f"redis://r?{SECRET}=1", "an option that is not known"),
        ("redis://r?db=1&db=2", "there twice"),
        (f"redis://r/{SECRET}", "the database of an address is a number"),
        ("redis://r,r:6379", "a host is there twice"),
        ("redis://" + ",".join(f"h{number}" for number in range(MAX_HOSTS + 1)), "at most 16 hosts, not 17"),
        ("redis+sentinel://r", "names the master's service"),
        ("redis+sentinel://r/m/x", "the database of an address is a number"),
        ("redis://r?ssl_ca_certs=/ca", "ssl_ca_certs: of use with rediss:// only"),
        (f"rediss://r?sentinel_password={SECRET}", "sentinel_password: of use with redis+sentinel:// only"),
        ("rediss://r?ssl_certfile=/c", "go together"),
        ("rediss://r?ssl_ca_certs=", "ssl_ca_certs: empty"),
        ("rediss://r?ssl_cert_reqs=perhaps", "ssl_cert_reqs is one of none, optional, required"),
        ("rediss://r?ssl_check_hostname=perhaps", "ssl_check_hostname is true or false"),
        ("unix://run/redis.sock", "absolute path"),
    ],
)
def test_what_is_no_address_is_refused_and_not_shown(url: str, words: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_address(url)
    assert words in str(caught.value)
    assert SECRET not in str(caught.value)


@given(
    st.sampled_from(["redis", "rediss", "redis+sentinel", "rediss+sentinel", "unix", ""]),
    st.text(alphabet="ab:/?#@,%[]&=.0123456789 é\n", max_size=40),
)
def test_whatever_stands_there_is_an_address_or_refused(scheme: str, rest: str) -> None:
    try:
        address = parse_address(f"{scheme}://{rest}")
    except AddressError:
        return
    assert address.socket or all(host and 1 <= port <= 65_535 for host, port in address.hosts)
    assert bool(address.service) is scheme.endswith("+sentinel")
