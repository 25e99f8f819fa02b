"""What vLLM reads from the environment: set before it is imported, and inherited by its processes."""

from __future__ import annotations

import ctypes.util
import json
import os
import sys
from collections.abc import Mapping
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from shared.config.nodes.nodes import NodeSpec
from shared.telemetry.telemetry import json_handler

ERRORS = "errors.log"
"""In the folder of a process: what all of vLLM's processes have to say of errors."""
_LOGGING = "VLLM_LOGGING_CONFIG_PATH"
_AFFINITY = "KMP_AFFINITY"
_START_METHOD = "VLLM_WORKER_MULTIPROC_METHOD"


def preload() -> None:
    """Begin this process anew with what is to be loaded before all else where processors compute.

    What vLLM's manual advises, as far as it is installed: an allocator, and Intel's OpenMP.
    """
    present = os.environ.get("LD_PRELOAD", "").split(":")
    wanted = [library for library in _preloads() if library not in present]
    if wanted or _AFFINITY not in os.environ:
        # else Intel's OpenMP binds each copy of a process to its first CPU: all of vLLM's processes to the same one
        os.environ.setdefault(_AFFINITY, "none")  # disabled, it fails in copies
        os.environ["LD_PRELOAD"] = ":".join([*wanted, *filter(None, present)])
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - this very program


def set_environment(node: NodeSpec, folder: Path) -> None:
    """Of this process, and so of all that it starts. ``folder`` is for sockets and logs."""
    os.environ.update(environment(node, folder))
    log_to(folder / ERRORS, node.name)


def copy_from_now_on() -> None:
    """Let vLLM's processes be copies of the one that starts them, which has imported all: that takes seconds each.

    vLLM says otherwise where processors compute, as OpenMP is told some things before a process begins; here all of
    them are told (`preload`, `set_environment`), but for the processors of each worker.
    """
    resource_tracker.ensure_running()  # one for all of them: a core's own would be killed with it, and clean up nothing
    os.environ[_START_METHOD] = "fork"


def may_copy(node: NodeSpec) -> bool:
    """Devices do not outlive a copy; workers that are bound to processors learn of theirs when they begin."""
    return not node.cuda_devices and not _is_bound(node)


def environment(node: NodeSpec, folder: Path) -> Mapping[str, str]:
    """By name."""
    always = {
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",  # a model is a folder; nothing is fetched
        "TRANSFORMERS_OFFLINE": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # below that, C++ code writes lines of text
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_RPC_BASE_PATH": str(folder),
        _START_METHOD: "spawn",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        "VLLM_USE_V2_MODEL_RUNNER": "0",  # its logits processors are of another kind
    }
    return always | (_of_devices(node) if node.cuda_devices else _of_processors(node))


def log_to(errors: Path, instance: str) -> None:
    """Let vLLM's lines be as ours, of this process and those that it starts; errors go to a file too, to be told."""
    level, handler = "WARNING", f"{json_handler.__module__}.{json_handler.__qualname__}"
    handlers: dict[str, Any] = {
        "stderr": {"()": handler, "service": "engine", "instance": instance, "level": level},
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
    bind = ",".join(map(str, node.cpus)) if _is_bound(node) else "nobind"
    threads = {"VLLM_CPU_OMP_THREADS_BIND": bind, "OMP_NUM_THREADS": str(node.num_threads)}
    # else the first request with logprobs would wait half a minute for a helper of vLLM's to be compiled
    return threads | ({"TORCH_COMPILE_DISABLE": "1"} if is_eager(node) else {})


def _is_bound(node: NodeSpec) -> bool:
    return bool(node.cpus) and node.tensor_parallel == 1


def is_eager(node: NodeSpec) -> bool:
    """Whether nothing is compiled: on processors, unless the node's arguments say it (``--no-enforce-eager``)."""
    return not node.cuda_devices and not any("enforce" in text for text in node.vllm_options.args)


def _of_devices(node: NodeSpec) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": ",".join(name.removeprefix("cuda:") for name in node.cuda_devices)}


def _preloads() -> list[str]:
    openmp = Path(sys.prefix, "lib", "libiomp5.so")
    found = [ctypes.util.find_library("tcmalloc_minimal"), str(openmp) if openmp.exists() else None]
    return [library for library in found if library]
