"""Redis, the chart's or one's own: how the processes find it, and what it keeps."""

from __future__ import annotations

from shared.config import REDIS_ENV
from tests.helm.chart import VALUES, Chart, environment, of_kind, processes


def redis_address(chart: Chart, name: str) -> object:
    return environment(processes(chart.objects(VALUES[name]))["treadle-gateway"])[REDIS_ENV]


def test_redis_is_the_charts_or_ones_own(chart: Chart) -> None:
    assert redis_address(chart, "default") == "redis://treadle-redis:6379/0"
    assert redis_address(chart, "everything") == "redis://:$(TREADLE_REDIS_PASSWORD)@treadle-redis:6379/0"
    assert redis_address(chart, "least") == {"secretKeyRef": {"name": "redis", "key": "address"}}
    assert redis_address(chart, "own-redis") == {"secretKeyRef": {"name": "treadle-redis-url", "key": "url"}}
    secret = of_kind(chart.objects(VALUES["own-redis"]), "Secret")["treadle-redis-url"]
    assert secret["stringData"] == {"url": "rediss://:a-password@redis.example.com:6380/0"}


def test_the_password_of_redis_is_known_before_it_is_used(chart: Chart) -> None:
    """Kubernetes puts in the value of a variable only where that stands before."""
    for owner, container in processes(chart.objects(VALUES["everything"])).items():
        names = [entry["name"] for entry in container.get("env", [])]
        if owner != "treadle-redis":
            assert names.index("TREADLE_REDIS_PASSWORD") < names.index(REDIS_ENV)


def test_redis_keeps_every_write_and_evicts_nothing(chart: Chart) -> None:
    arguments = processes(chart.objects({}))["treadle-redis"]["args"]
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    wanted = {"--appendonly": "yes", "--appendfsync": "everysec", "--save": "", "--maxmemory-policy": "noeviction"}
    assert options.items() >= wanted.items()


def test_redis_has_a_reserve_beyond_its_limit(chart: Chart) -> None:
    """Ends, cancels and leases are written there too; a process that is killed for its memory frees nothing."""
    container = processes(chart.objects({}))["treadle-redis"]
    max_memory = container["args"][container["args"].index("--maxmemory") + 1]
    assert (max_memory, container["resources"]["limits"]["memory"]) == ("1280mb", "2Gi")
    assert 1280 / 2048 == 5 / 8
