"""The engine process: ``python -m gpu_node.engine --node NAME --fd N``, started by the node agent."""

from __future__ import annotations

import argparse
import gc
import signal
import socket
import sys
import time

import structlog

from gpu_node.engine.engine import Engine
from gpu_node.engine.measures.kv_costs import KvCostTables
from gpu_node.engine.process.connection import EngineConnection
from gpu_node.engine.process.cost_tables import kept_tables
from gpu_node.engine.process.refusal import refuse
from gpu_node.engine.process.server import EngineServer
from gpu_node.engine.process.step_file import open_step_file
from gpu_node.engine.tiers.open_store import open_store
from gpu_node.executors.node_executor import make_executor
from gpu_node.grammars.compiler import GrammarCompiler
from shared.config.config import ClusterConfig, load_config
from shared.config.measured.profiles import profiled_costs, profiles_file, read_profiles
from shared.config.model_specs import ModelSpecs
from shared.config.nodes.nodes import NodeSpec
from shared.config.pipelines.pipelines import pipelines_folder, read_pipelines
from shared.errors import OperatorError
from shared.files.model_file import checked_path
from shared.telemetry.telemetry import configure_logging


def main() -> int:
    """Serve the agent at the other end of the inherited socket; the process's exit status."""
    gc.enable()  # `shared.processes.start` has it off until all is imported
    parser = argparse.ArgumentParser(prog="python -m gpu_node.engine", description=__doc__)
    parser.add_argument("--node", required=True, help="name of the node in the configuration")
    parser.add_argument("--fd", required=True, type=int, help="inherited Unix stream socket to the agent")
    arguments = parser.parse_args()
    configure_logging("engine", instance=arguments.node)
    # Ctrl-C in a terminal reaches every process of the group; the agent alone says when its engine ends
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        config = load_config()
        node = config.node(arguments.node)
        profiles = read_profiles(profiles_file(config))
        pipelines = read_pipelines(config.engine, pipelines_folder(config.data_dir))
        executor = make_executor(node, config.engine, pipelines)
        tables = _cost_tables(config, node, executor.device)
        store = open_store(config.engine.tiers, node.name, executor)
    except OperatorError as error:  # no traceback: the text says all, and pydantic's own may hold a secret
        structlog.get_logger().error("engine not started", error=str(error))
        refuse(arguments.fd, str(error))
        return 1
    try:
        with socket.socket(fileno=arguments.fd) as sock:
            profiled = profiled_costs(profiles, config, node, executor.device)
            log = open_step_file(arguments.node)
            specs = ModelSpecs(config.models)
            grammars = GrammarCompiler(lambda name: checked_path(specs.told(name)))
            engine = Engine(executor, config.engine, profiled, log, store, tables, grammars)
            EngineServer(EngineConnection(sock), engine, specs, executor.device, time.monotonic, time.time).run()
    except Exception:  # the state is unknown now: say what happened, end, and be started anew by the agent
        structlog.get_logger().exception("engine failed")
        return 1
    finally:
        if store is not None:
            store.close()
    return 0


def _cost_tables(config: ClusterConfig, node: NodeSpec, device: str) -> dict[str, KvCostTables]:
    """By model, where `treadle profile` has measured it on such a node; only decisions by cost read them."""
    if config.engine.preemption != "adaptive" and config.engine.admission != "priced":
        return {}
    return kept_tables(config, node, device)


if __name__ == "__main__":
    sys.exit(main())
