"""How other nodes reach this one: what it is told, or the address it listens on, or the one it has towards Redis."""

from __future__ import annotations

import os
import socket

import structlog

from shared.bus.redis_address import parse_address
from shared.config.addresses import url_of
from shared.config.config import NODE_HOST_ENV

EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - nothing is bound here

log = structlog.get_logger()


def own_url(listens_on: str, port: int, redis_url: str) -> str:
    """Of the admin port, for other nodes. No name is asked for and nothing is sent, but for a Redis that has a name.

    Where Redis is reached over the loopback so are the other nodes, unless `NODE_HOST_ENV` says another address.
    """
    host = os.environ.get(NODE_HOST_ENV) or listens_on
    return url_of(_towards(redis_url) if host in EVERYWHERE else host, port)


def _towards(redis_url: str) -> str:
    """The address that a packet to Redis would have as its sender."""
    address = parse_address(redis_url)
    if not address.hosts:
        return "127.0.0.1"
    host, port = address.hosts[0]
    try:
        found = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_DGRAM)
        family, _, _, _, place = found[0]
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect(place)
            own: str = sock.getsockname()[0]
    except OSError as error:
        log.warning("own address unknown: no other node can fetch KV here", error=str(error), set_it=NODE_HOST_ENV)
        return "127.0.0.1"
    return own
