"""Ports: whether one is free, and who has it if not."""

from __future__ import annotations

import socket

import psutil

from cli.cluster.processes.process_plan import ProcessSpec


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # as servers do: connections of an earlier life that linger in TIME_WAIT do not count
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
        return True


def free_port(host: str) -> int:
    """A port that nobody listens on, chosen by the kernel."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def taken_ports(specs: list[ProcessSpec]) -> list[str]:
    """A line for each port that is taken: whose it is, who holds it, what to do."""
    admin = [(spec.name, "admin_port", spec.host, spec.port) for spec in specs]
    clients = [(spec.name, f"{spec.name}.port", *spec.clients) for spec in specs if spec.clients]
    return [
        f"port {port} for {name} cannot be used: {_holder(port)}; end that process or set {setting} to another port"
        for name, setting, host, port in [*admin, *clients]
        if not is_free(host, port)
    ]


def _holder(port: int) -> str:
    """Who listens on ``port``, as far as this user may know."""
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
                if connection.pid is None:
                    return "a process of another user holds it"
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid}) holds it"
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        pass  # some systems show other processes' sockets to root only; the port is taken all the same
    return "another process holds it, or this host has no such address"
