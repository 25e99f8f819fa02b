"""Who makes up the cluster: two gateways, each service with a standby, three nodes. And its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from cli.cluster.processes.process_plan import SERVICES, ProcessSpec, process_environment, process_plan
from shared.config.config import (
    ADMIN_PORT_ENV,
    ADMIN_SERVICES,
    INSTANCE_ENV,
    REDIS_ENV,
    SMOLLM2_SHA256,
    SMOLLM2_SOURCE,
    load_config,
)
from tests.chaos.member import Member
from tests.chaos.tiny_model import write_tiny_model
from tests.ports import free_port_range

HOST = "127.0.0.1"
API_KEY = "sk-chaos-key-that-must-be-in-no-log"
REAL, TINY = "real", "tiny"
NODES = ("node-0", "node-1", "node-2")
GATEWAYS = ("gateway-a", "gateway-b")
NUM_PORTS = len(ADMIN_SERVICES) * 2 + len(NODES) + len(GATEWAYS)
TRACED = {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"}
"""A part of the requests, as in production: spans of all would take a tenth of two cores."""
DEADLINE_S = 45.0
"""Of every request. On a machine whose cores are shared it leaves time for a node to begin anew."""


def write_config(folder: Path, name: str, admin_port: int, gateway_port: int, otlp_url: str) -> Path:
    """A configuration file; the gateways' differ by their port."""
    tiny = folder / "tiny.gguf"
    if not tiny.exists():
        write_tiny_model(tiny)
    config: dict[str, Any] = {
        "models": [
            {"name": REAL, "source": SMOLLM2_SOURCE, "sha256": SMOLLM2_SHA256, "max_model_len": 1024},
            {"name": TINY, "source": str(tiny), "max_model_len": 1024},
        ],
        "slo_classes": {"chaos": {"deadline_s": DEADLINE_S, "queue_ttl_s": 300}},
        "nodes": [{"name": node} for node in NODES],
        "engine": {"max_num_seqs": 4, "kv_cache_bytes": 64 << 20},
        "gateway": {"port": gateway_port, "default_slo": "chaos"},
        "keys": [{"key": API_KEY, "tenant": "chaos"}],
        "admin_port": admin_port,
        "data_dir": str(folder / "data"),
        "otlp_endpoint": otlp_url,
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def make_members(folder: Path, otlp_url: str) -> list[Member]:
    """All but Redis, in the order of their start; `at` gives each its way to Redis."""
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    first = free_port_range(NUM_PORTS)
    second, ports = first + len(ADMIN_SERVICES) + len(NODES), list(range(first, first + NUM_PORTS))[-len(GATEWAYS) :]
    configs = [write_config(folder, name, first, port, otlp_url) for name, port in zip(GATEWAYS, ports, strict=True)]
    plan = process_plan(load_config(configs[0]))
    found: list[Member] = []
    for spec in plan:
        if spec.name == "gateway":
            for name, config, admin_port, port in zip(GATEWAYS, configs, (spec.port, second), ports, strict=True):
                gateway = _member(folder, spec, name, config, admin_port)
                gateway.clients_url = f"http://{HOST}:{port}"
                found.append(gateway)
        else:
            found.append(_member(folder, spec, spec.name, configs[0], spec.port))
        if spec.name in SERVICES:
            found.append(_member(folder, spec, f"{spec.name}-2", configs[0], second))
            second += 1
    return found


def _member(folder: Path, spec: ProcessSpec, name: str, config: Path, port: int) -> Member:
    environment = process_environment(str(config), "", spec.num_threads) | {INSTANCE_ENV: name} | TRACED
    environment[ADMIN_PORT_ENV] = str(port)
    kind = "node" if spec.name in NODES else spec.name
    return Member(name, kind, list(spec.argv), environment, folder, f"http://{HOST}:{port}")


def at(member: Member, redis_port: int) -> Member:
    """The member, told where its Redis is."""
    member.environment[REDIS_ENV] = f"redis://{HOST}:{redis_port}/0"
    return member
