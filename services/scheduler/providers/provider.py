"""What a node provider is, and which there are."""

from __future__ import annotations

import importlib
from typing import Protocol

from shared.config.config import ClusterConfig, ConfigError
from shared.config.nodes.nodes import NodePool

_MODULES = {
    "process": ("services.scheduler.providers.process", "psutil"),
    "docker": ("services.scheduler.providers.docker", "docker"),
    "kubernetes": ("services.scheduler.providers.kubernetes", "kubernetes"),
}
"""By ``scaling.provider``: where it is, and the package that it needs. A cluster has the packages of one of them."""


class ProviderError(Exception):
    """The pool is not as it should be; the text says why, and what to do where that is known."""


class Provider(Protocol):
    """Its methods block; they run in a thread, those of one pool one after another."""

    def scale(self, pool: NodePool, num_nodes: int) -> int:
        """Make nodes 0 to ``num_nodes - 1`` of the pool run and no others; how many run now.

        May be called again at any time with the same or another number, also by a provider that has just begun: what
        runs is looked up, not remembered. A node that is stopped is asked first (SIGTERM), so that it hands its work
        back. Raises `ProviderError`.
        """


def make_provider(config: ClusterConfig, redis_url: str) -> Provider:
    """The configured provider; `ConfigError` where its package is missing, or what it needs of the surroundings."""
    name = config.scaling.provider
    module, package = _MODULES[name]
    try:
        make = importlib.import_module(module).make
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise ConfigError(
            f"scaling.provider: {name} needs the Python package {package!r}: pip install 'treadle[{name}]'"
        ) from error
    provider: Provider = make(config, redis_url)
    return provider
