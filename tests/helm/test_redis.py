"""Redis, the chart's or one's own: how the processes find it, and what it keeps."""

from __future__ import annotations

import base64

from helm.__main__ import USERS, current_users
from shared.bus.redis_address import Tls, parse_address
from shared.bus.redis_roles import ROLES
from shared.config.config import REDIS_ENV
from tests.helm.chart import VALUES, Chart, environment, of_kind, pools, processes
from tests.helm.reach import ports_outside


def redis_address(chart: Chart, name: str) -> object:
    return environment(processes(chart.objects(VALUES[name]))["treadle-gateway"])[REDIS_ENV]


def test_redis_is_the_charts_or_ones_own(chart: Chart) -> None:
    assert redis_address(chart, "default") == "redis://treadle-redis:6379/0"
    assert redis_address(chart, "everything") == "redis://:$(TREADLE_REDIS_PASSWORD)@treadle-redis:6379/0"
    assert redis_address(chart, "least") == {"secretKeyRef": {"name": "redis", "key": "address"}}
    assert redis_address(chart, "own-redis") == {"secretKeyRef": {"name": "treadle-redis-url", "key": "url"}}
    secret = of_kind(chart.objects(VALUES["own-redis"]), "Secret")["treadle-redis-url"]
    assert secret["stringData"] == {"url": "rediss://:a-password@redis.example.com:6380/0"}


def test_each_process_comes_as_its_own_user(chart: Chart) -> None:
    for name, secret in (("users", "redis-passwords"), ("sentinels", "redis-passwords")):
        objects = chart.objects(VALUES[name])
        found = {}
        for owner, container in processes(objects).items():
            if owner == "treadle-redis":
                continue
            env = environment(container)
            address = parse_address(env[REDIS_ENV])
            assert address.password == "$(TREADLE_REDIS_PASSWORD)"
            assert env["TREADLE_REDIS_PASSWORD"] == {"secretKeyRef": {"name": secret, "key": address.username}}
            assert address.tls == Tls(ca_file="/etc/treadle-redis/ca.crt")
            mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            assert mounts["/etc/treadle-redis"] == "redis-ca"
            found[owner] = address.username
        services = ("gateway", "queue-manager", "scheduler", "kv-manager")
        assert found == {f"treadle-{one}": one for one in services} | dict.fromkeys(pools(objects), "node")


def test_sentinels_are_named_with_their_service_and_can_be_reached(chart: Chart) -> None:
    objects = chart.objects(VALUES["sentinels"])
    address = parse_address(environment(processes(objects)["treadle-gateway"])[REDIS_ENV])
    assert address.hosts == (("sentinel-0.redis", 26379), ("sentinel-1.redis", 26380))
    assert (address.service, address.db) == ("mymaster", 1)
    assert ports_outside(objects, "treadle-kv-manager") >= {(6379, "TCP"), (26379, "TCP"), (26380, "TCP")}


def test_with_addresses_in_a_secret_each_user_has_its_own(chart: Chart) -> None:
    values = {"redis": {"enabled": False, "existingSecret": "addresses", "acl": {"enabled": True}}}
    env = environment(processes(chart.objects(values))["treadle-cpu"])
    assert env[REDIS_ENV] == {"secretKeyRef": {"name": "addresses", "key": "node"}}


def test_the_users_are_those_of_the_code(chart: Chart) -> None:
    assert USERS.read_text("utf-8") == current_users(), "run `make helm-docs`"
    (found,) = (one for name, one in of_kind(chart.objects(VALUES["users"]), "ConfigMap").items() if "acl" in name)
    assert found["data"]["users.acl"].strip() == current_users().strip()


def test_passwords_that_the_chart_makes_are_long_and_differ(chart: Chart) -> None:
    secret = of_kind(chart.objects({"redis": {"acl": {"enabled": True}}}), "Secret")["treadle-redis-users"]
    passwords = [base64.b64decode(text) for text in secret["data"].values()]
    assert set(secret["data"]) == {role.name for role in ROLES}
    assert len(set(passwords)) == len(ROLES)
    assert all(len(password) == 32 and password.isalnum() for password in passwords)


def test_with_tls_there_is_no_port_without(chart: Chart) -> None:
    objects = chart.objects(VALUES["users"])
    arguments = processes(objects)["treadle-redis"]["args"]
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert (options["--port"], options["--tls-port"]) == ("0", "6379")
    assert options["--aclfile"] == "/etc/redis-users/users.acl"
    certificate = of_kind(objects, "Certificate")["treadle-redis"]["spec"]
    assert "treadle-redis" in certificate["dnsNames"], "the name by which all processes connect"
    volumes = of_kind(objects, "StatefulSet")["treadle-redis"]["spec"]["template"]["spec"]["volumes"]
    assert {"name": "tls", "secret": {"secretName": certificate["secretName"], "defaultMode": 0o440}} in volumes


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
