"""Whether torch is installed where a node computes with it; nodes of processors do without."""

from __future__ import annotations

from importlib.util import find_spec

from shared.config.nodes.nodes import NodeSpec
from shared.errors import OperatorError

_EXECUTORS = ("cuda", "reference")
"""Those that compute with it: the extras of pyproject.toml have their names."""


class TorchMissingError(OperatorError, ModuleNotFoundError):
    """A node computes with torch, which is not installed here."""


def torch_problem(node: NodeSpec) -> str:
    """Why the node's executor cannot compute here; ``""`` if torch is there, or is not needed."""
    if node.kind not in _EXECUTORS or find_spec("torch") is not None:
        return ""
    return (
        f"executor: {node.kind} computes with torch, which is not installed here: run `make setup-torch`, "
        "or take the image gpu-node-cuda"
    )
