"""A node's threads stay on the CPUs that its configuration names, as the system tells it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.node_executor import CpuNotOursError, make_executor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.nodes.nodes import NodeSpec
from tests.gpu_node import tiny

OPTIONS = EngineOptions(kv_cache_bytes=1 << 20)
OURS = sorted(os.sched_getaffinity(0))


def allowed_cpus() -> dict[str, str]:
    """Of each thread of this process."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        lines = (task / "status").read_text().splitlines()
        (found[task.name],) = (line.split()[1] for line in lines if line.startswith("Cpus_allowed_list:"))
    return found


@pytest.mark.skipif(len(OURS) < 2, reason="needs two CPUs")
@pytest.mark.parametrize("cpus", [[OURS[-1]], [OURS[-1], OURS[0]]])
def test_each_thread_of_the_device_stays_on_its_own_cpu(cpus: list[int], tiny_path: Path) -> None:
    before = allowed_cpus()
    executor = make_executor(NodeSpec(name="n", num_threads=len(cpus), cpus=cpus), OPTIONS)
    assert isinstance(executor, CpuExecutor)
    try:
        engine = Engine(executor, OPTIONS)
        engine.load_model(ModelSpec(name="tiny", source=str(tiny_path), max_model_len=tiny.CONTEXT))
        tiny.run(engine, [tiny.request("r", [1, 2, 3], 2)])  # a step ends when all threads have had their part
        added = [allowed for task, allowed in allowed_cpus().items() if task not in before]
        pinned = [allowed for allowed in added if allowed.isdecimal()]  # threads of torch may go where they like
        assert sorted(pinned) == sorted(map(str, cpus))
    finally:
        executor.close()


@pytest.mark.skipif(len(OURS) < 2, reason="needs two CPUs")
def test_the_reference_executor_stays_on_its_cpus_as_a_whole() -> None:
    """In a process of its own, since torch's threads are made once and for all."""
    code = f"""
import os, torch
from gpu_node.executors.node_executor import make_executor
from shared.config.engines.engine import EngineOptions
from shared.config.nodes.nodes import NodeSpec
make_executor(NodeSpec(name="n", num_threads=2, cpus={OURS[:2]}, executor="reference"), EngineOptions())
torch.ones(512, 512) @ torch.ones(512, 512)
print(sorted({{cpu for task in os.listdir("/proc/self/task") for cpu in os.sched_getaffinity(int(task))}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(OURS[:2])


def test_a_cpu_that_this_process_may_not_use_is_refused() -> None:
    for kind in ("cpu", "reference"):
        node = NodeSpec.model_validate({"name": "n", "cpus": [1023], "executor": kind})
        with pytest.raises(CpuNotOursError, match=f"^node 'n': cpus names 1023, but this process may run on {OURS[0]}"):
            make_executor(node, OPTIONS)
