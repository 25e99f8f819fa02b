"""The engine process of a node with vLLM: ``PYTHON -m gpu_node.vllm --node NAME --fd N``, started by the node agent.

It runs in vLLM's own environment.
"""

from __future__ import annotations

import argparse
import math
import os
import queue
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

import structlog

from gpu_node.engine.process.connection import EngineConnection
from gpu_node.engine.process.refusal import refuse
from gpu_node.vllm.installation.environment import preload, set_environment
from gpu_node.vllm.installation.installed import check_installed, check_libraries
from gpu_node.vllm.installation.processes import begin_group
from gpu_node.vllm.serving.engine import VllmEngine
from gpu_node.vllm.serving.server import MAX_EVENTS, CoreTold, Inbox, VllmServer, read_commands
from gpu_node.vllm.words.border import CoreDiedError, CoreEvent
from shared.config.config import ClusterConfig, load_config
from shared.config.measured.profiled_costs import ProfiledCosts
from shared.config.measured.profiles import profiles_file
from shared.config.model_specs import ModelSpecs
from shared.config.nodes.nodes import NodeSpec
from shared.errors import OperatorError
from shared.telemetry.telemetry import configure_logging

log = structlog.get_logger()


def main() -> int:
    """Serve the agent at the other end of the inherited socket; the process's exit status."""
    parser = argparse.ArgumentParser(prog="python -m gpu_node.vllm", description=__doc__)
    parser.add_argument("--node", required=True, help="name of the node in the configuration")
    parser.add_argument("--fd", required=True, type=int, help="inherited Unix stream socket to the agent")
    arguments = parser.parse_args()
    configure_logging("engine", instance=arguments.node)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the agent alone says when its engine ends
    try:
        config = load_config()
        node = config.node(arguments.node)
        check_installed()
        if not node.cuda_devices:
            check_libraries()
            preload()
        folder = begin_group()
        try:
            set_environment(node, folder)
            return _serve(config, node, folder, arguments.fd)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except OperatorError as error:  # no traceback: the text says all, and pydantic's own may hold a secret
        log.error("engine not started", error=str(error))
        refuse(arguments.fd, str(error))
        return 1


def _serve(config: ClusterConfig, node: NodeSpec, folder: Path, descriptor: int) -> int:
    from gpu_node.vllm.serving.starter import CoreStarter  # imports vLLM, which reads its environment

    inbox: Inbox = queue.Queue(MAX_EVENTS)

    def tell(model: str, event: CoreEvent) -> None:
        inbox.put(CoreTold(model, event))

    starter = CoreStarter(node, config.engine, folder, tell)
    specs = ModelSpecs(config.models)
    profiled = ProfiledCosts(profiles_file(config), node, starter.device, specs)
    evicted_kv_bytes = config.engine.evicted_kv_bytes if node.keeps_kv else 0
    engine = VllmEngine(starter.start, config.engine, profiled, evicted_kv_bytes, _sleeping_bytes(node))
    try:
        with socket.socket(fileno=descriptor) as sock:
            os.register_at_fork(after_in_child=lambda: _leave(sock))
            connection = EngineConnection(sock, reads_ahead=False)
            read_commands(connection, inbox)
            VllmServer(connection, engine, inbox, specs, starter.device, time.monotonic).run()
    except CoreDiedError as died:
        log.error("engine failed", error=str(died))
        return 1
    finally:
        engine.close()
    return 0


def _sleeping_bytes(node: NodeSpec) -> float | None:
    """vLLM refuses to let models sleep on processors: there, all that stay are awake."""
    bound = node.vllm_options.sleeping_bytes
    return (math.inf if bound is None else bound) if node.cuda_devices else None


def _leave(sock: socket.socket) -> None:
    """In a copy of this process: the agent is to hear at once when this one has gone."""
    if sock.fileno() >= 0:
        os.close(sock.detach())


if __name__ == "__main__":
    sys.exit(main())
