"""One of the processes that share the clients' port: what its parent tells it, and its share of the limits."""

from __future__ import annotations

import argparse
import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared.config.config import ClusterConfig


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A place among ``num_workers``, and what a process in it inherits."""

    number: int
    num_workers: int
    sockets: tuple[int, ...]
    """Descriptors of the clients' port."""
    admin_path: str
    """UNIX socket on which it answers its parent."""
    parent: int
    """Descriptor of a pipe that ends when the parent does."""

    def arguments(self) -> list[str]:
        """Of the command line that makes a process this worker."""
        return [
            *("--worker", str(self.number), "--of", str(self.num_workers), "--sockets", *map(str, self.sockets)),
            *("--admin-path", self.admin_path, "--parent", str(self.parent)),
        ]

    def open_sockets(self) -> list[socket.socket]:
        """Those that it has inherited."""
        return [socket.socket(fileno=descriptor) for descriptor in self.sockets]

    def watch_parent(self, on_end: Callable[[], None]) -> None:
        """Call ``on_end`` when the parent is no more, however it ended."""
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(self.parent)  # an end stays readable for ever
            on_end()

        loop.add_reader(self.parent, ended)


def parse_worker(arguments: Sequence[str]) -> Worker | None:
    """What `Worker.arguments` has written; None without arguments, as operators start the gateway."""
    if not arguments:
        return None
    parser = argparse.ArgumentParser(prog="python -m gateway", description="The gateway needs no arguments.")
    parser.add_argument("--worker", type=int, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--of", type=int, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--sockets", type=int, nargs="+", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--admin-path", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--parent", type=int, required=True, help=argparse.SUPPRESS)
    found = parser.parse_args(arguments)
    return Worker(
        number=found.worker,
        num_workers=found.of,
        sockets=tuple(found.sockets),
        admin_path=found.admin_path,
        parent=found.parent,
    )


def share(config: ClusterConfig, num_workers: int) -> ClusterConfig:
    """The configuration of one of so many workers: all of them together keep the limits of the gateway."""
    options = config.gateway
    shares = {
        "max_inflight": options.max_inflight // num_workers,
        "max_inflight_bytes": options.max_inflight_bytes // num_workers,
        "max_connections": options.most_connections // num_workers,
    }
    return config.model_copy(update={"gateway": options.model_copy(update=shares)})
