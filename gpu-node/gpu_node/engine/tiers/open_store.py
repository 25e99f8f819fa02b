"""The store that a configuration asks for: in the node's own folder, with a thread that reads and writes there."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from gpu_node.engine.border.executor import Executor, HostMemory
from gpu_node.engine.tiers.disk import Disk
from gpu_node.engine.tiers.kv_store import KvStore
from gpu_node.engine.tiers.ssd_folder import SsdFolder
from gpu_node.engine.tiers.ssd_thread import SsdThread
from shared.config.engines.tiers import TierOptions
from shared.errors import OperatorError


class NoStoreError(OperatorError, RuntimeError):
    """The engine's executor cannot have a tier on an SSD."""


def store_in_folder(options: TierOptions, node: str, memory: HostMemory, disk: Disk | None = None) -> KvStore:
    """The node's own folder. `FolderError` where it cannot be used."""
    assert options.ssd_folder is not None
    path = Path(options.ssd_folder).expanduser() / quote(node, safe="")
    folder = SsdFolder(path, disk)
    return KvStore(folder, options.ssd_bytes, memory, lambda segments: SsdThread(folder, segments))


def open_store(options: TierOptions, node: str, executor: Executor) -> KvStore | None:
    """What the options ask for; None where they ask for no SSD. `FolderError`, `NoStoreError`."""
    if not options.ssd_bytes:
        return None
    if not isinstance(executor, HostMemory):
        raise NoStoreError(
            f"engine.tiers.ssd_bytes: {executor.device} has no host memory for blocks that could be written to an SSD; "
            "leave ssd_bytes and ssd_folder out (host_bytes works), or set executor: cpu"
        )
    return store_in_folder(options, node, executor)
