"""How each process of a cluster is: from the kernel, and from what the process says of itself."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import psutil

from cli.cluster.processes.health import known_state, readiness
from cli.cluster.processes.process_plan import GATEWAY, NODE_STAGE, REDIS, ProcessSpec, node_spec, process_plan
from cli.cluster.processes.redis_server import answers
from cli.cluster.run_dir import RunDir
from cli.cluster.state import ClusterState
from shared.config.config import ClusterConfig
from shared.messages.nodes.nodes import BOTH
from shared.processes.node_processes import find_nodes
from shared.processes.process_record import ProcessRecord

READY = "ready"
STARTING = "starting"
DEAD = "dead"


@dataclass(kw_only=True)
class ProcessStatus:
    """One row of `treadle status`. None stands for what is not known."""

    name: str
    state: str
    waits_for: str = ""
    pid: int | None = None
    uptime_s: float | None = None
    rss_bytes: int | None = None
    """Memory of the process and of those it started."""
    device: str | None = None
    """Kind of a node's device, as it calls itself."""
    model: str | None = None
    num_running: int | None = None
    num_waiting: int | None = None
    kv_used: float | None = None
    """Used part of the KV blocks, 0 to 1."""
    phases: str | None = None
    """Of a node that serves one phase, or follows the load: what it serves now."""


def cluster_status(config: ClusterConfig, run_dir: RunDir) -> list[ProcessStatus]:
    """A row for Redis, one for each process of the plan, and one for each node of a pool that runs here."""
    state = ClusterState.load(run_dir.state_file)
    pool_nodes = find_nodes(str(run_dir.config_file))
    return [
        _redis_status(config, state),
        *(_status(spec, state.processes.get(spec.name)) for spec in process_plan(config)),
        *(_status(node_spec(config, name), record) for name, record in pool_nodes.items() if config.pool_of(name)),
    ]


def _redis_status(config: ClusterConfig, state: ClusterState) -> ProcessStatus:
    if config.redis_url is not None:
        ready = answers(config.redis_url.get_secret_value())
        return ProcessStatus(name=REDIS, state=READY if ready else DEAD)
    row = ProcessStatus(name=REDIS, state=DEAD)
    record = state.processes.get(REDIS)
    if record is not None and _add_usage(row, record):
        row.state = READY
    return row


def _status(spec: ProcessSpec, record: ProcessRecord | None) -> ProcessStatus:
    row = ProcessStatus(name=spec.name, state=DEAD)
    if record is None or not _add_usage(row, record):
        return row
    found = readiness(spec)
    row.state, row.waits_for = (READY, "") if found.ready else (STARTING, found.waits_for)
    if spec.stage == NODE_STAGE:
        _add_node_state(row, known_state(spec))
    if found.ready and spec.name == GATEWAY:
        row.waits_for = missing_workers(known_state(spec))
    return row


def missing_workers(state: dict[str, Any]) -> str:
    """What a gateway that serves still waits for: workers that start, or have died."""
    workers, num_ready = state.get("workers"), state.get("num_ready")
    if not isinstance(workers, list) or not isinstance(num_ready, int):
        return ""  # it is a single process
    num_workers = len({worker.get("worker") for worker in workers if isinstance(worker, dict)})
    return f"{num_ready} of {num_workers} workers" if num_ready < num_workers else ""


def _add_usage(row: ProcessStatus, record: ProcessRecord) -> bool:
    """Fill in what the kernel knows; False if the process is no more."""
    leader = record.leader()
    if leader is None:
        return False
    row.pid = record.pid
    row.uptime_s = round(max(0.0, time.time() - record.create_time), 1)
    row.rss_bytes = sum(_rss_bytes(process) for process in {leader, *record.family()})
    return True


def _rss_bytes(process: psutil.Process) -> int:
    try:
        return process.memory_info().rss
    except psutil.NoSuchProcess:
        return 0


def _add_node_state(row: ProcessStatus, state: dict[str, Any]) -> None:
    """Fill in what a node says. Keys may be missing: it may be of a neighbouring version."""
    row.device = state.get("device")
    row.model = state.get("model")
    row.num_running = state.get("num_running")
    row.num_waiting = state.get("num_waiting")
    facts = state.get("facts")
    if isinstance(facts, dict) and ("phases" in facts or facts.get("follows_load")):
        row.phases = facts.get("phases", BOTH)
    blocks, free = state.get("num_blocks"), state.get("num_free_blocks")
    if isinstance(blocks, int) and isinstance(free, int) and blocks > 0:
        row.kv_used = (blocks - free) / blocks
