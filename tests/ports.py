"""Ports for clusters of tests, of which several processes run some at a time."""

from __future__ import annotations

import os

from cli.cluster.processes.ports import free_port, is_free

HOST = "127.0.0.1"
FIRST_PORT, NUM_PORTS = 20_000, 12_000  # below those that the kernel gives out itself
PORT_TRIES = 100


def own_ports() -> range:
    """The part that belongs to this process: others cannot take a port between our look at it and its use."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    size = NUM_PORTS // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return range(FIRST_PORT + number * size, FIRST_PORT + (number + 1) * size)


def free_port_range(num_ports: int) -> int:
    """The first of some consecutive free ports."""
    ours = own_ports()
    for _ in range(PORT_TRIES):
        first = ours[free_port(HOST) % (len(ours) - num_ports)]
        if all(is_free(HOST, first + number) for number in range(num_ports)):
            return first
    raise OSError("no range of free ports")
