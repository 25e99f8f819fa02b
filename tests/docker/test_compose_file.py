"""docker-compose.yml and the Dockerfiles as files: every container is confined, and every knob is explained."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from helm.__main__ import current_users
from shared.bus.redis_address import parse_address
from shared.bus.redis_roles import acl_file
from shared.config.addresses import batches_url, gateway_of_batches
from shared.config.config import BATCHES, SERVICES, parse_config

ROOT = Path(__file__).parents[2]
COMPOSE_TEXT = (ROOT / "docker-compose.yml").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_TEXT)
CONTAINERS: dict[str, dict[str, Any]] = COMPOSE["services"]
USERS_TEXT = (ROOT / "deploy" / "compose" / "redis-users.yml").read_text()
USERS: dict[str, Any] = yaml.safe_load(USERS_TEXT)
CLUSTER_FILE = ROOT / "deploy" / "compose" / "cluster.yaml"
CLUSTER = parse_config(CLUSTER_FILE.read_text(), str(CLUSTER_FILE))
DOCKERFILES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("*/Dockerfile*"))

OBSERVABILITY = {"prometheus", "grafana", "otel-collector"}
UNPROBED = {"models", "otel-collector"}  # one ends by itself, the other's image has nothing to probe with
USER = "10001:10001"
NODE_FILES = {"cpu": "gpu-node/Dockerfile", "gpu": "gpu-node/Dockerfile.cuda", "vllm": "gpu-node/Dockerfile.vllm"}


def variables(text: str) -> set[str]:
    """Those that it names, and those that it hands on as they are."""
    return set(re.findall(r"\$\{([A-Z_]+)", text)) | set(re.findall(r"^ +([A-Z][A-Z0-9_]+):(?: +#.*)?$", text, re.M))


def resolved(value: str) -> str:
    """A value with the defaults of its variables."""
    return re.sub(r"\$\{[A-Z_]+:-([^}]*)\}", r"\1", value)


def dockerfile(container: str) -> str | None:
    build = CONTAINERS[container].get("build")
    return build["dockerfile"] if build else None


def last_stage(path: str) -> str:
    return (ROOT / path).read_text().rpartition("\nFROM ")[2]


def test_it_holds_the_services_of_the_code_and_the_nodes_of_its_configuration() -> None:
    nodes = [node.name for node in CLUSTER.nodes]
    assert set(CONTAINERS) == {*SERVICES, "models", *nodes} | OBSERVABILITY
    profiles = {name: container["profiles"] for name, container in CONTAINERS.items() if "profiles" in container}
    assert profiles == {name: ["observability"] for name in OBSERVABILITY} | {"gpu-0": ["gpu"], "vllm-0": ["vllm"]}


def test_each_node_has_its_name_its_image_and_the_name_by_which_all_are_found() -> None:
    for node in CLUSTER.nodes:
        container = CONTAINERS[node.name]
        assert container["environment"]["TREADLE_NODE"] == node.name
        assert container["networks"]["default"]["aliases"] == ["nodes"]
        assert dockerfile(node.name) == NODE_FILES[container.get("profiles", ["cpu"])[0]]


def test_a_node_on_a_device_is_given_one_and_keeps_its_kernels_where_it_may_write_and_load_them() -> None:
    (node,) = [node for node in CLUSTER.nodes if node.cuda_devices]
    container = CONTAINERS[node.name]
    (reserved,) = container["deploy"]["resources"]["reservations"]["devices"]
    assert reserved == {"driver": "nvidia", "count": len(node.cuda_devices), "capabilities": ["gpu"]}
    assert node.cuda_devices == ["cuda:0"], "a container sees the devices that it was given, from 0 on"
    stage = last_stage(NODE_FILES["gpu"])
    (folder,) = re.findall(r"TRITON_CACHE_DIR=(\S+)", stage)
    assert f"install -d -o treadle -g treadle /models {folder}" in stage, "a new volume has the owner of the folder"
    assert [mount for mount in container["volumes"] if mount.endswith(f":{folder}")] == [f"kernels:{folder}"]
    assert not any(folder in mount for mount in container["tmpfs"]), "Docker mounts a tmpfs noexec"


def test_a_node_with_vllm_has_memory_to_share_and_a_folder_that_it_may_write_to() -> None:
    (node,) = [node for node in CLUSTER.nodes if node.engine == "vllm"]
    container, stage = CONTAINERS[node.name], last_stage(NODE_FILES["vllm"])
    assert container["shm_size"] == "1g"
    (folder,) = re.findall(r"VLLM_CACHE_ROOT=(\S+)/vllm", stage)
    assert f"HOME={folder} " in stage, "what it writes beside that goes there, too"
    assert f"install -d -o treadle -g treadle /models {folder}" in stage
    assert [mount for mount in container["volumes"] if mount.endswith(f":{folder}")] == [f"vllm:{folder}"]
    (environment,) = re.findall(r"PATH=(\S+):\$PATH", stage)
    assert str(node.vllm_options.python) == f"{environment}/python"


def test_batches_lie_in_a_volume_that_their_service_may_write_to_and_both_sides_find_each_other() -> None:
    folder, container = str(CLUSTER.batch_folder), CONTAINERS[BATCHES]
    assert CLUSTER.batches.enabled
    path = dockerfile(BATCHES)
    assert path is not None
    assert f"/models {folder}" in last_stage(path), "a new volume has the owner of the folder"
    assert [mount for mount in container["volumes"] if mount.endswith(f":{folder}")] == [f"batches:{folder}"]
    assert batches_url(CLUSTER) == f"http://{BATCHES}:9400"
    assert gateway_of_batches(CLUSTER) == f"http://gateway:{CLUSTER.gateway.port}"


@pytest.mark.parametrize("path", DOCKERFILES)
def test_an_image_is_probed_by_what_it_holds(path: str) -> None:
    for module in re.findall(r'HEALTHCHECK.*"-m", "([a-z_.]+)"', last_stage(path)):
        assert (ROOT / Path(*module.split("."))).with_suffix(".py").exists()


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_container_is_confined(name: str) -> None:
    container = CONTAINERS[name]
    assert container["read_only"] is True
    assert container["cap_drop"] == ["ALL"]
    assert container["security_opt"] == ["no-new-privileges:true"]
    assert container["mem_limit"]
    assert container["pids_limit"] > 0
    built = dockerfile(name)
    user = container.get("user") or (re.search(r"^USER (\S+)$", last_stage(built), re.M) if built else None)
    assert user, f"{name} runs as root"
    assert user not in ("root", "0")
    assert "privileged" not in container
    assert not any("docker.sock" in str(volume) for volume in container.get("volumes", []))


@pytest.mark.parametrize("name", sorted(set(CONTAINERS) - UNPROBED))
def test_every_container_that_stays_is_probed(name: str) -> None:
    built = dockerfile(name)
    assert "test" in CONTAINERS[name].get("healthcheck", {}) or (built and "HEALTHCHECK" in last_stage(built))


def test_whoever_waits_for_health_waits_for_somebody_who_tells_it() -> None:
    for name, container in CONTAINERS.items():
        for other, wanted in dict(container.get("depends_on") or {}).items():
            ends = "service_completed_successfully" if other == "models" else "service_healthy"
            assert wanted == {"condition": ends}, (name, other)


def test_redis_has_a_reserve_beyond_its_limit() -> None:
    """Ends, cancels and leases are written there too; a process that is killed for its memory frees nothing."""
    redis = CONTAINERS["redis"]
    max_memory = redis["command"][redis["command"].index("--maxmemory") + 1]
    assert (max_memory, redis["mem_limit"]) == ("640mb", "1g")
    assert 640 / 1024 == 5 / 8


def test_only_this_machine_is_served_by_default() -> None:
    ports = [resolved(port) for container in CONTAINERS.values() for port in container.get("ports", [])]
    assert sorted(ports) == ["127.0.0.1:3000:3000", "127.0.0.1:8080:8080", "127.0.0.1:9090:9090"]


def test_every_variable_is_explained() -> None:
    explained = set(re.findall(r"^(?:# )?([A-Z][A-Z0-9_]+)=", (ROOT / ".env.example").read_text(), re.M))
    used = variables(COMPOSE_TEXT) | variables(USERS_TEXT)
    assert used <= explained
    of_the_code = {name for name in explained if name.startswith("TREADLE_")}
    assert explained - of_the_code <= used, "explained, but nobody reads it"


def test_with_users_each_container_comes_as_its_own() -> None:
    users = {
        name: parse_address(re.sub(r"\$\{[A-Z_]+:\?\}", "x", container["environment"]["TREADLE_REDIS_URL"])).username
        for name, container in USERS["services"].items()
        if name != "redis"
    }
    nodes = [node.name for node in CLUSTER.nodes]
    assert users == {name: name for name in CLUSTER.admin_services} | dict.fromkeys(nodes, "node")


def test_the_users_of_redis_get_digests_of_their_passwords(tmp_path: Path) -> None:
    redis = USERS["services"]["redis"]
    template = tmp_path / "template.acl"
    template.write_text(current_users())
    users = tmp_path / "users.acl"
    script = redis["command"][0].replace("$$", "$").replace("exec redis-server", "exec echo")
    script = script.replace("/etc/redis-acl/users.acl", str(template)).replace("/tmp/users.acl", str(users))
    passwords = {variable: variable.lower() for variable in redis["environment"]}
    said = subprocess.run(
        [*redis["entrypoint"], script], env=os.environ | passwords, capture_output=True, text=True, check=True
    )
    assert users.read_text() == acl_file(
        lambda role: "#" + hashlib.sha256(f"password_{role.replace('-', '_')}".encode()).hexdigest()
    )
    # all that the plain one is given beside the users
    plain = [option for option in CONTAINERS["redis"]["command"][1:] if option]
    assert set(plain) <= {*said.stdout.split()}


def test_what_is_mounted_from_here_is_here() -> None:
    volumes = [resolved(volume) for container in CONTAINERS.values() for volume in container.get("volumes", [])]
    folders = [volume.split(":")[0] for volume in volumes if volume.startswith("./")]
    assert [folder for folder in folders if not (ROOT / folder).exists()] == []
    named = {volume.split(":")[0] for volume in volumes if not volume.startswith("./")}
    assert named == set(COMPOSE["volumes"])


def test_prometheus_asks_every_process_where_it_answers() -> None:
    config = yaml.safe_load((ROOT / "deploy/compose/prometheus.yml").read_text())
    targets = set()
    for job in config["scrape_configs"]:
        targets |= {target for static in job.get("static_configs", []) for target in static["targets"]}
        targets |= {f"{name}:{dns['port']}" for dns in job.get("dns_sd_configs", []) for name in dns["names"]}
    admin = {f"{name}:9400" for name in SERVICES if name != "redis"}
    assert targets == {"nodes:9400", "otel-collector:8888"} | admin


@pytest.mark.parametrize("path", DOCKERFILES)
def test_an_image_is_built_on_what_it_is_told_and_from_hashes_alone(path: str) -> None:
    text = (ROOT / path).read_text()
    bases = re.findall(r"^FROM (\S+)", text, re.M)
    assert set(bases) <= {"${BASE_IMAGE}", "${BUILD_IMAGE}"}
    assert bases[-1] == "${BASE_IMAGE}"
    assert text.startswith("#")
    assert "ARG BASE_IMAGE=python:3.11-slim" in text
    for install in re.findall(r"pip install(?:.*\\\n)*.*", text):
        assert "--require-hashes" in install
        assert "--only-binary=:all:" in install
    assert f"\nUSER {USER}\n" in last_stage(path)
    assert "apt-get" not in last_stage(path)


@pytest.mark.parametrize("path", DOCKERFILES)
def test_what_an_image_is_probed_by_is_there(path: str) -> None:
    probes = re.findall(r'HEALTHCHECK .* CMD \["python", "-m", "([\w.]+)"\]', last_stage(path))
    assert all(importlib.util.find_spec(module) for module in probes)


def test_nodes_may_write_to_their_ssd_tier() -> None:
    """The volume takes over whose folder it is from the image."""
    for name in ("node-0", "node-1"):
        (mount,) = [resolved(one) for one in CONTAINERS[name]["volumes"] if "TREADLE_KV_VOLUME" in one]
        volume, _, folder = mount.partition(":")
        assert volume in COMPOSE["volumes"]
        assert re.search(rf"install -d -o treadle -g treadle .*{folder}$", last_stage(NODE_FILES["cpu"]), re.M)


def test_there_is_a_dockerfile_for_each_component() -> None:
    assert DOCKERFILES == [
        "gateway/Dockerfile",
        "gpu-node/Dockerfile",
        "gpu-node/Dockerfile.cuda",
        "gpu-node/Dockerfile.vllm",
        "services/Dockerfile",
    ]
    assert {dockerfile(name) for name in CONTAINERS} - {None} == set(DOCKERFILES)


def test_the_log_of_every_container_is_bounded() -> None:
    for name, container in CONTAINERS.items():
        logging = container["logging"]
        assert (logging["driver"], logging["options"]) == ("json-file", {"max-size": "16m", "max-file": "3"}), name
