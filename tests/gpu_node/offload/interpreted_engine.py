"""An engine process whose CUDA device is the interpreter: ``python -m`` this module, as `gpu_node.engine`."""

from __future__ import annotations

import argparse
import os
import socket
import time

os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported

from gpu_node.engine.engine import Engine
from gpu_node.engine.process.connection import EngineConnection
from gpu_node.engine.process.server import EngineServer
from gpu_node.executors.group.part import RankSpec
from shared.config.config import load_config
from shared.config.model_specs import ModelSpecs
from tests.gpu_node.quick_interpreter import quicken


def main() -> None:
    """Serve the other end of the inherited socket, in float32."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--node", required=True)
    parser.add_argument("--fd", required=True, type=int)
    arguments = parser.parse_args()
    quicken()
    config = load_config()
    executor = RankSpec("cuda", "cpu", "float32").make(config.engine)
    with socket.socket(fileno=arguments.fd) as sock:
        engine = Engine(executor, config.engine)
        EngineServer(
            EngineConnection(sock), engine, ModelSpecs(config.models), executor.device, time.monotonic, time.time
        ).run()


if __name__ == "__main__":
    main()
