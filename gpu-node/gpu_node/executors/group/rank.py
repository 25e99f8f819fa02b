"""A further device of a tensor-parallel group, as a process: ``python -m gpu_node.executors.group.rank``.

It is started by `TensorParallelExecutor`, does the same steps as the first device, and ends when that is gone.
"""

from __future__ import annotations

import argparse
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

import msgspec
import structlog

from gpu_node.engine.border.executor import Executor, ModelTooLargeError, PendingStep
from gpu_node.executors.collectives import CollectiveError
from gpu_node.executors.group.parent_death import end_with
from gpu_node.executors.group.part import RankSpec
from gpu_node.executors.group.rank_protocol import (
    ComputeStep,
    LoadShard,
    RankGoneError,
    ShardAnswer,
    ToRank,
    UnloadShard,
    receive,
    send,
)
from shared.config.engines.engine import EngineOptions
from shared.files.model_file import ModelFileError
from shared.telemetry.telemetry import configure_logging


def serve(sock: socket.socket, executor: Executor) -> NoReturn:
    """Do what the first device says until it is gone: `RankGoneError`."""
    before: PendingStep | None = None
    while True:
        message: ToRank = receive(sock, ToRank)  # type: ignore[arg-type]  # a union is no type
        match message:
            case LoadShard(spec, instead_of):
                try:
                    executor.load_model(spec, instead_of)
                except (ModelFileError, ModelTooLargeError) as error:
                    send(sock, ShardAnswer(str(error)))
                else:
                    send(sock, ShardAnswer())
            case UnloadShard(name):
                executor.unload_model(name)
            case ComputeStep(plan):
                # every device draws: chance depends on seed, choice and position, so all of them draw the same tokens
                step = executor.submit(plan)
                if before is not None:  # a step is launched while the one before runs, as on the first device
                    before.result()
                before = step


def main() -> int:
    """Join the group and serve; the process's exit status."""
    parser = argparse.ArgumentParser(prog="python -m gpu_node.executors.group.rank", description=__doc__)
    parser.add_argument("--rank", required=True, type=int)
    parser.add_argument("--world", required=True, type=int)
    parser.add_argument("--store", required=True, type=Path, help="file by which the group finds together")
    parser.add_argument("--parent", required=True, type=int, help="process id of the first device")
    parser.add_argument("--fd", required=True, type=int, help="inherited Unix stream socket to the first device")
    parser.add_argument("--part", required=True, help="Part as JSON")
    parser.add_argument("--options", required=True, help="EngineOptions as JSON")
    arguments = parser.parse_args()
    end_with(arguments.parent)
    configure_logging("engine", instance=f"rank-{arguments.rank}")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the first device says when it ends
    try:
        part = msgspec.json.decode(arguments.part, type=RankSpec)
        group = part.join(arguments.rank, arguments.world, arguments.store)
        options = msgspec.json.decode(arguments.options, type=EngineOptions)
        with socket.socket(fileno=arguments.fd) as sock:
            serve(sock, part.make(options, group))
    except RankGoneError:
        return 0
    except CollectiveError as error:
        structlog.get_logger().error("rank ends", error=str(error))
        return 1
    except Exception:  # say what happened and end: the first device notices, and its engine ends too
        structlog.get_logger().exception("rank failed")
        return 1


if __name__ == "__main__":
    sys.exit(main())
