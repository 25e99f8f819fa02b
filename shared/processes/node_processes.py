"""Nodes of pools that run as processes of this machine: found by the marks in their environment, so nothing is kept.

The kernel is the only record. Each reader, the node provider after a restart or `treadle down`, finds the same, and
no crash between a start and a note of it can leave a node that is not known of.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from shared.config.config import ADMIN_PORT_ENV, CONFIG_ENV, INSTANCE_ENV, NODE_ENV
from shared.processes.process_record import ProcessRecord, is_running
from shared.processes.processes import launch
from shared.telemetry.log_files import log_file, rotate

MARKED_WITHIN_S = 5.0  # a process shows its environment: it takes microseconds
MARKS_POLL_S = 0.001
NODE_STAGE = 2  # see `cli.cluster.processes.process_plan`: after the services, before the gateway


def find_nodes(config_path: str) -> dict[str, ProcessRecord]:
    """By name, the sessions of this cluster's pool nodes in which anything runs, with or without their leader."""
    found: dict[str, ProcessRecord] = {}
    for one in _marked(config_path):
        if one.pid == one.leader_pid:
            found[one.name] = ProcessRecord(one.pid, one.started_s, NODE_STAGE, config_path)
        else:  # its leader may be gone: then no process has that time of start
            found.setdefault(one.name, ProcessRecord(one.leader_pid, 0.0, NODE_STAGE, config_path))
    return dict(sorted(found.items()))


class _Marked(NamedTuple):
    """A process of a node, as it was while it was there."""

    name: str
    pid: int
    leader_pid: int
    started_s: float


def _marked(config_path: str) -> Iterator[_Marked]:
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            if environment.get(CONFIG_ENV) == config_path and NODE_ENV in environment and is_running(process):
                pid = process.pid
                yield _Marked(environment[NODE_ENV], pid, os.getsid(pid), process.create_time())
        except (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError):
            continue  # it has ended, or belongs to another user: none of ours


def launch_node(name: str, num_threads: int, config_path: str, data_dir: Path) -> ProcessRecord:
    """Start a node in a session of its own. It inherits our environment, the address of Redis with it."""
    environment = {
        **os.environ,
        CONFIG_ENV: config_path,
        NODE_ENV: name,
        "OMP_NUM_THREADS": str(num_threads),
    }
    for ours in (ADMIN_PORT_ENV, INSTANCE_ENV):
        environment.pop(ours, None)
    log = log_file(data_dir, name)
    rotate(log)
    record = launch([sys.executable, "-m", "gpu_node.agent"], environment, log, NODE_STAGE)
    _await_marks(record.pid)
    return record


def _await_marks(pid: int) -> None:
    """Until the process can be found: the kernel says that it has begun before it shows what its environment is."""
    deadline_s = time.monotonic() + MARKED_WITHIN_S
    while time.monotonic() < deadline_s:
        try:
            if NODE_ENV in psutil.Process(pid).environ():
                return
        except psutil.NoSuchProcess:
            return  # it has ended already: its log says why
        time.sleep(MARKS_POLL_S)
    raise TimeoutError(f"process {pid} shows no environment within {MARKED_WITHIN_S} s: is /proc mounted?")
