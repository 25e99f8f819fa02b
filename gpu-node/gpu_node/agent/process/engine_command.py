"""How the engine of a node is started."""

from __future__ import annotations

import sys

from shared.config.nodes.nodes import NodeSpec


def engine_command(node: NodeSpec) -> list[str]:
    """The command line of its process, but for the socket: our engine in this environment, or vLLM in its own."""
    if node.engine == "vllm":
        return [str(node.vllm_options.python), "-m", "gpu_node.vllm", "--node", node.name]
    return [sys.executable, "-m", "gpu_node.engine", "--node", node.name]
