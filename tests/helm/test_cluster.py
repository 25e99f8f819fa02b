"""The configuration that the chart writes is the one that the processes read, and pods are told who they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from gpu_node.agent.engine_process import STOP_TIMEOUT_S
from gpu_node.agent.epoch import DRAIN_S
from shared import __version__
from shared.config import (
    ADMIN_PORT_ENV,
    ADMIN_SERVICES,
    CONFIG_ENV,
    KEYS_ENV,
    MODELS_ENV,
    NODE_ENV,
    REDIS_ENV,
    SERVICES,
    ClusterConfig,
    parse_config,
)
from shared.service import INSTANCE_ENV
from tests.helm import engine
from tests.helm.chart import (
    DEFAULTS,
    VALUES,
    WORKLOADS,
    Chart,
    Object,
    cluster,
    cluster_text,
    containers,
    environment,
    of_kind,
    pod_templates,
)

every_case = pytest.mark.parametrize("name", VALUES)
ROOT = Path(__file__).parents[2]
POD_NAME = {"fieldRef": {"fieldPath": "metadata.name"}}


def main_containers(objects: list[Object]) -> dict[str, Object]:
    """Workload → its one container."""
    return {owner: pod["spec"]["containers"][0] for owner, pod in pod_templates(objects) if owner != "treadle-test"}


def test_versions_images_and_users_are_those_of_the_repository(chart: Chart) -> None:
    about = yaml.safe_load((engine.CHART / "Chart.yaml").read_text("utf-8"))
    assert about["appVersion"] == __version__
    images = {part["image"] for _, pod in pod_templates(chart.objects({})) for part in containers(pod)}
    ours = {image.removesuffix(f":{__version__}") for image in images if image.startswith("treadle/")}
    compose = (ROOT / "docker-compose.yml").read_text("utf-8")
    built = {"/".join(parts) for parts in re.findall(r"image: \$\{IMAGE_PREFIX:-(\w+)\}/([\w-]+):", compose)}
    assert ours == built - {"treadle/gpu-node-cuda"}, "that one is for a pool: gpuNode.pools[].image.repository"
    assert images - {f"{image}:{__version__}" for image in ours} == {"redis:7.4"}
    for file in ROOT.glob("*/Dockerfile*"):
        assert f"USER {DEFAULTS['podSecurityContext']['runAsUser']}:" in file.read_text("utf-8")


def pools(objects: list[Object]) -> dict[str, Object]:
    """The StatefulSets of nodes."""
    return {owner: found for owner, found in of_kind(objects, "StatefulSet").items() if owner != "treadle-redis"}


@every_case
def test_the_configuration_is_valid_and_holds_no_secret(chart: Chart, name: str) -> None:
    objects = chart.objects(VALUES[name])
    config = cluster(objects)
    assert config.keys == []
    assert config.redis_url is None
    for secret in ("sk-of-a-test", "a-password"):
        assert secret not in cluster_text(objects)


def test_the_default_values_are_the_defaults_of_the_code(chart: Chart) -> None:
    config, code = cluster(chart.objects({})), ClusterConfig()
    assert config.models == code.models
    assert (config.slo_classes, config.engine, config.queue) == (code.slo_classes, code.engine, code.queue)


def test_what_is_said_of_the_cluster_arrives(chart: Chart) -> None:
    values = VALUES["everything"]
    config = cluster(chart.objects(values))
    assert config.slo("chat").ttft_s == 2
    assert config.tenants["acme"].weight == 2
    assert config.engine.kv_cache_bytes == 1 << 30
    assert config.queue.operations.migrate is False
    assert config.gateway.max_inflight == 1024
    assert (config.scaling.provider, config.scaling.down_cooldown_s) == ("kubernetes", 600)
    assert config.otlp_endpoint == values["tracing"]["endpoint"]


@every_case
def test_the_services_are_those_of_the_code(chart: Chart, name: str) -> None:
    objects = chart.objects(VALUES[name])
    own_redis = not VALUES[name].get("redis", {}).get("enabled", True)
    expected = [f"treadle-{service}" for service in SERVICES if not (own_redis and service == "redis")]
    assert sorted(of_kind(objects, *WORKLOADS).keys() - pools(objects).keys()) == sorted(expected)
    commands = {owner: container["command"] for owner, container in main_containers(objects).items()}
    for service in ADMIN_SERVICES:
        assert commands[f"treadle-{service}"] == ["python", "-m", f"services.{service.replace('-', '_')}"]
    assert commands["treadle-gateway"] == ["python", "-m", "gateway"]
    assert all(commands[pool] == ["python", "-m", "gpu_node.agent"] for pool in pools(objects))


@every_case
def test_a_pool_is_a_stateful_set_of_its_name_so_pods_are_called_like_nodes(chart: Chart, name: str) -> None:
    objects = chart.objects(VALUES[name])
    config = cluster(objects)
    assert config.nodes == []
    assert [pool.name for pool in config.pools] == list(pools(objects))
    for pool in config.pools:
        found = pools(objects)[pool.name]
        assert environment(found["spec"]["template"]["spec"]["containers"][0])[NODE_ENV] == POD_NAME
        scaled_by_us = config.scaling.provider == "kubernetes"
        assert found["spec"].get("replicas") == (None if scaled_by_us else pool.max_nodes)
        assert pool.ordinal(f"{pool.name}-{pool.max_nodes - 1}") == pool.max_nodes - 1


@every_case
def test_processes_are_told_where_everything_is(chart: Chart, name: str) -> None:
    objects = chart.objects(VALUES[name])
    for owner, container in main_containers(objects).items():
        if owner == "treadle-redis":
            continue
        env = environment(container)
        assert env[CONFIG_ENV] == "/etc/treadle/cluster.yaml"
        assert env[INSTANCE_ENV] == POD_NAME
        assert env[ADMIN_PORT_ENV] == "9400"
        assert REDIS_ENV in env
        assert (env.get(MODELS_ENV) == "/models") is (owner == "treadle-gateway" or owner in pools(objects))
        mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
        assert mounts["/etc/treadle"]
        assert mounts.get("/models", True), "only who fetches models may write there"


@every_case
def test_only_the_gateway_sees_the_keys(chart: Chart, name: str) -> None:
    objects = chart.objects(VALUES[name])
    with_keys = [
        owner for owner, pod in pod_templates(objects) for part in containers(pod) if KEYS_ENV in environment(part)
    ]
    assert with_keys == (["treadle-gateway"] if "apiKeys" in VALUES[name] else [])


def test_the_keys_of_the_secret_are_a_list_as_the_gateway_reads_it(chart: Chart) -> None:
    objects = chart.objects(VALUES["everything"])
    text = of_kind(objects, "Secret")["treadle-keys"]["stringData"]["keys.yaml"]
    together = cluster_text(objects) + "\nkeys:\n" + text
    (key,) = parse_config(together, "both").keys
    assert (key.key.get_secret_value(), key.tenant, key.slo_classes) == ("sk-of-a-test", "acme", ["chat"])


def redis_address(chart: Chart, name: str) -> object:
    return environment(main_containers(chart.objects(VALUES[name]))["treadle-gateway"])[REDIS_ENV]


def test_redis_is_the_charts_or_ones_own(chart: Chart) -> None:
    assert redis_address(chart, "default") == "redis://treadle-redis:6379/0"
    assert redis_address(chart, "everything") == "redis://:$(TREADLE_REDIS_PASSWORD)@treadle-redis:6379/0"
    assert redis_address(chart, "least") == {"secretKeyRef": {"name": "redis", "key": "address"}}
    assert redis_address(chart, "own-redis") == {"secretKeyRef": {"name": "treadle-redis-url", "key": "url"}}
    secret = of_kind(chart.objects(VALUES["own-redis"]), "Secret")["treadle-redis-url"]
    assert secret["stringData"] == {"url": "rediss://:a-password@redis.example.com:6380/0"}


def test_the_password_of_redis_is_known_before_it_is_used(chart: Chart) -> None:
    """Kubernetes puts in the value of a variable only where that stands before."""
    for owner, container in main_containers(chart.objects(VALUES["everything"])).items():
        names = [entry["name"] for entry in container.get("env", [])]
        if owner != "treadle-redis":
            assert names.index("TREADLE_REDIS_PASSWORD") < names.index(REDIS_ENV)


def test_redis_keeps_every_write_and_evicts_nothing(chart: Chart) -> None:
    arguments = main_containers(chart.objects({}))["treadle-redis"]["args"]
    options = dict(zip(arguments[::2], arguments[1::2], strict=True))
    wanted = {"--appendonly": "yes", "--appendfsync": "everysec", "--save": "", "--maxmemory-policy": "noeviction"}
    assert options.items() >= wanted.items()


@every_case
def test_pods_have_the_time_that_they_need_to_end(chart: Chart, name: str) -> None:
    objects = chart.objects(VALUES[name])
    config = cluster(objects)
    for owner, pod in pod_templates(objects):
        grace_s = pod["spec"]["terminationGracePeriodSeconds"]
        if owner == "treadle-gateway":
            before_s = pod["spec"]["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
            assert grace_s > before_s + config.gateway.drain_s
        if owner in pools(objects):
            assert grace_s > DRAIN_S + STOP_TIMEOUT_S


@every_case
def test_an_update_takes_nothing_away_before_something_new_is_there(chart: Chart, name: str) -> None:
    for found in of_kind(chart.objects(VALUES[name]), "Deployment").values():
        assert found["spec"]["strategy"] == {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
        }
    for found in pools(chart.objects(VALUES[name])).values():
        assert found["spec"]["updateStrategy"] == {"type": "RollingUpdate"}, "one pod at a time, the last first"


def test_what_a_pod_reads_restarts_it_when_it_changes(chart: Chart) -> None:
    def checksums(values: dict[str, object]) -> dict[str, dict[str, str]]:
        found = of_kind(chart.objects(values), *WORKLOADS)
        notes = {owner: one["spec"]["template"]["metadata"].get("annotations", {}) for owner, one in found.items()}
        return {owner: {key: text for key, text in note.items() if "checksum" in key} for owner, note in notes.items()}

    before = checksums({})
    after = checksums({"cluster": {"engine": {"block_size": 32}}})
    assert {owner for owner in before if before[owner] != after[owner]} == set(before) - {"treadle-redis"}
    one, two = (checksums({"apiKeys": {"list": [{"key": key, "tenant": "a"}]}}) for key in ("sk-1", "sk-2"))
    assert {owner for owner in one if one[owner] != two[owner]} == {"treadle-gateway"}
    rotated = checksums({"redis": {"enabled": False, "url": "redis://:1@r"}})
    again = checksums({"redis": {"enabled": False, "url": "redis://:2@r"}})
    assert {owner for owner in rotated if rotated[owner] != again[owner]} == set(rotated)


def test_a_scheduler_that_scales_may_ask_for_replicas_of_its_pools_and_for_nothing_else(chart: Chart) -> None:
    objects = chart.objects(VALUES["everything"])
    (role,) = of_kind(objects, "Role").values()
    assert role["rules"] == [
        {
            "apiGroups": ["apps"],
            "resources": ["statefulsets/scale"],
            "resourceNames": ["treadle-small", "treadle-spare"],
            "verbs": ["get", "patch"],
        }
    ]
    (binding,) = of_kind(objects, "RoleBinding").values()
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (subject,) = binding["subjects"]
    pods = dict(pod_templates(objects))
    accounts = {owner: pod["spec"]["serviceAccountName"] for owner, pod in pods.items()}
    assert [owner for owner, account in accounts.items() if account == subject["name"]] == ["treadle-scheduler"]


def test_nobody_may_do_anything_where_nobody_scales(chart: Chart) -> None:
    for name in VALUES.keys() - {"everything"}:
        assert of_kind(chart.objects(VALUES[name]), "Role", "RoleBinding") == {}


def test_pools_have_what_all_have_and_what_is_their_own(chart: Chart) -> None:
    found = {owner: one["spec"]["template"] for owner, one in pools(chart.objects(VALUES["gpu-pools"])).items()}
    resources = {owner: pod["spec"]["containers"][0]["resources"] for owner, pod in found.items()}
    assert resources == {
        "treadle-a10": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "4Gi", "nvidia.com/gpu": 1}},
        "treadle-a100": {"requests": {"cpu": "8", "memory": "32Gi"}, "limits": {"memory": "32Gi", "nvidia.com/gpu": 1}},
        "treadle-cpu": {"requests": {"cpu": "8", "memory": "4Gi"}, "limits": {"memory": "4Gi", "nvidia.com/gpu": 0}},
    }
    assert {pod["spec"]["runtimeClassName"] for pod in found.values()} == {"nvidia"}
    threads = {owner: environment(pod["spec"]["containers"][0])["OMP_NUM_THREADS"] for owner, pod in found.items()}
    assert threads == {"treadle-a10": "1", "treadle-a100": "1", "treadle-cpu": "8"}
    assert found["treadle-cpu"]["metadata"]["labels"]["tier"] == "cheap"
