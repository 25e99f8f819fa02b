"""Where processes of a cluster on one machine reach one another."""

from __future__ import annotations

from shared.config.config import BATCHES, ClusterConfig


def reachable(host: str) -> str:
    """The address on this machine by which to reach who listens on ``host``."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - nothing is bound here


def gateway_url(config: ClusterConfig) -> str:
    """Where clients on this machine find the gateway."""
    return _url(config.gateway.host, config.gateway.port)


def gateway_of_batches(config: ClusterConfig) -> str:
    """Where the batch service finds gateways."""
    return config.batches.gateway_url or gateway_url(config)


def batches_url(config: ClusterConfig) -> str:
    """Where gateways find the batch service."""
    return config.batches.url or _url(config.admin_host, config.admin_port_of(BATCHES))


def _url(host: str, port: int) -> str:
    return url_of(reachable(host), port)


def url_of(host: str, port: int) -> str:
    """With brackets around an address of IPv6."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
