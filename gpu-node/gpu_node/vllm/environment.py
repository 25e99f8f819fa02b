"""What vLLM reads from the environment: set before it is imported, and inherited by its processes."""

from __future__ import annotations

import ctypes.util
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shared.config.nodes import NodeSpec

_LOGGING = "VLLM_LOGGING_CONFIG_PATH"


def set_environment(node: NodeSpec, folder: Path) -> None:
    """Of this process, and so of all that it starts. ``folder`` is for sockets and logs."""
    os.environ.update(environment(node, folder))
    log_to(folder / "errors.log")
    if not node.cuda_devices and (libraries := _preloads()):
        # of no use to this process, which has begun; the ones that compute are started by it
        os.environ["LD_PRELOAD"] = ":".join([*libraries, *filter(None, [os.environ.get("LD_PRELOAD")])])


def environment(node: NodeSpec, folder: Path) -> Mapping[str, str]:
    """By name."""
    always = {
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",  # a model is a folder; nothing is fetched
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_RPC_BASE_PATH": str(folder),
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "VLLM_USE_V2_MODEL_RUNNER": "0",  # its logits processors are of another kind
    }
    return always | (_of_devices(node) if node.cuda_devices else _of_processors(node))


def log_to(errors: Path) -> None:
    """Let processes that are started from now on write their errors into a file too, whence they are told."""
    level, stream = "WARNING", "ext://sys.stderr"
    handlers: dict[str, Any] = {
        "stderr": {"class": "logging.StreamHandler", "formatter": "plain", "level": level, "stream": stream},
        "errors": {"class": "logging.FileHandler", "formatter": "plain", "level": "ERROR", "filename": str(errors)},
    }
    config = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": "%(levelname)s %(name)s: %(message)s"}},
        "handlers": handlers,
        "loggers": {"vllm": {"handlers": list(handlers), "level": level, "propagate": False}},
    }
    path = errors.with_suffix(".json")
    path.write_text(json.dumps(config), encoding="utf-8")
    os.environ[_LOGGING] = str(path)


def _of_processors(node: NodeSpec) -> dict[str, str]:
    """vLLM would take all CPUs, less those that it reserves, for each of its engines."""
    named = ",".join(map(str, node.cpus))
    binds = named and node.tensor_parallel == 1
    threads = {"VLLM_CPU_OMP_THREADS_BIND": named if binds else "nobind", "OMP_NUM_THREADS": str(node.num_threads)}
    # else the first request with logprobs would wait half a minute for a helper of vLLM's to be compiled
    return threads | ({"TORCH_COMPILE_DISABLE": "1"} if is_eager(node) else {})


def is_eager(node: NodeSpec) -> bool:
    """Whether nothing is compiled: on processors, unless the node's arguments say it (``--no-enforce-eager``)."""
    return not node.cuda_devices and not any("enforce" in text for text in node.vllm_options.args)


def _of_devices(node: NodeSpec) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": ",".join(name.removeprefix("cuda:") for name in node.cuda_devices)}


def _preloads() -> list[str]:
    """What vLLM's manual advises to preload, as far as it is installed: an allocator, and Intel's OpenMP."""
    openmp = Path(sys.prefix, "lib", "libiomp5.so")
    found = [ctypes.util.find_library("tcmalloc_minimal"), str(openmp) if openmp.exists() else None]
    return [library for library in found if library]
