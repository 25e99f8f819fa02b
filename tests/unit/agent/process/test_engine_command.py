"""Which program an agent starts as its engine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpu_node.agent.process.engine_command import engine_command
from gpu_node.agent.process.engine_process import EngineProcess, EngineRefusedError
from shared.config.nodes.nodes import NodeSpec
from shared.config.nodes.vllm import VllmOptions


def test_our_engine_in_this_environment_and_vllm_in_its_own() -> None:
    ours = NodeSpec(name="a")
    theirs = NodeSpec(name="b", engine="vllm", vllm=VllmOptions(python=Path("/opt/vllm/bin/python")))
    assert engine_command(ours) == [sys.executable, "-m", "gpu_node.engine", "--node", "a"]
    assert engine_command(theirs) == ["/opt/vllm/bin/python", "-m", "gpu_node.vllm", "--node", "b"]


async def test_a_program_that_is_not_there_is_a_refusal_and_not_tried_again(tmp_path: Path) -> None:
    with pytest.raises(EngineRefusedError, match="none cannot be started: No such file or directory"):
        await EngineProcess.start([str(tmp_path / "none"), "-m", "gpu_node.vllm"])
