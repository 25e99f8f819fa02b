"""The configuration that the chart writes is the one that the processes read, and pods are told who they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from cli.cluster.processes.process_plan import NODE_STAGE, process_plan
from shared import __version__
from shared.config.config import (
    ADMIN_PORT_ENV,
    BATCHES,
    CONFIG_ENV,
    INSTANCE_ENV,
    KEYS_ENV,
    REDIS_ENV,
    SERVICES,
    ClusterConfig,
    parse_config,
)
from shared.files.model_file import MODELS_ENV
from tests.helm import engine
from tests.helm.chart import (
    DEFAULTS,
    POD_NAME,
    VALUES,
    WORKLOADS,
    Chart,
    cluster,
    cluster_text,
    containers,
    environment,
    of_kind,
    pod_templates,
    pools,
    processes,
)

every_case = pytest.mark.parametrize("name", VALUES)
ROOT = Path(__file__).parents[2]


def test_versions_images_and_users_are_those_of_the_repository(chart: Chart) -> None:
    about = yaml.safe_load((engine.CHART / "Chart.yaml").read_text("utf-8"))
    assert about["appVersion"] == __version__
    images = {part["image"] for _, pod in pod_templates(chart.objects({})) for part in containers(pod)}
    ours = {image.removesuffix(f":{__version__}") for image in images if image.startswith("treadle/")}
    compose = (ROOT / "docker-compose.yml").read_text("utf-8")
    built = {"/".join(parts) for parts in re.findall(r"image: \$\{IMAGE_PREFIX:-(\w+)\}/([\w-]+):", compose)}
    assert ours == built - {"treadle/gpu-node-cuda", "treadle/gpu-node-vllm"}, "those are for pools that say so"
    assert images - {f"{image}:{__version__}" for image in ours} == {"redis:7.4"}
    for file in ROOT.glob("*/Dockerfile*"):
        assert f"USER {DEFAULTS['podSecurityContext']['runAsUser']}:" in file.read_text("utf-8")


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
    left_out = {"redis": own_redis, BATCHES: name != "everything"}
    expected = [f"treadle-{service}" for service in SERVICES if not left_out.get(service, False)]
    assert sorted(of_kind(objects, *WORKLOADS).keys() - pools(objects).keys()) == sorted(expected)
    commands = {owner: container["command"] for owner, container in processes(objects).items()}
    config = cluster(objects)
    modules = {spec.name: spec.arguments[0] for spec in process_plan(config) if spec.stage != NODE_STAGE}
    for service, module in modules.items():
        assert commands[f"treadle-{service}"] == ["python", "-m", module]
    assert modules.keys() == set(config.admin_services)
    assert all(commands[pool] == ["python", "-m", "gpu_node.agent"] for pool in pools(objects))


@every_case
def test_processes_are_told_where_everything_is(chart: Chart, name: str) -> None:
    objects = chart.objects(VALUES[name])
    for owner, container in processes(objects).items():
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
