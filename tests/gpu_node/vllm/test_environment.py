"""What vLLM is told by its environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpu_node.vllm.environment import environment, is_eager, log_to
from shared.config.nodes import NodeSpec
from shared.config.vllm import VllmOptions


def node(**more: object) -> NodeSpec:
    return NodeSpec(name="n", engine="vllm", **more)  # type: ignore[arg-type]


def test_threads_are_the_node_s_and_stay_on_its_cpus(tmp_path: Path) -> None:
    free = environment(node(num_threads=2), tmp_path)
    bound = environment(node(num_threads=2, cpus=[4, 6]), tmp_path)
    assert (free["OMP_NUM_THREADS"], free["VLLM_CPU_OMP_THREADS_BIND"]) == ("2", "nobind")
    assert bound["VLLM_CPU_OMP_THREADS_BIND"] == "4,6"
    assert (free["HF_HUB_OFFLINE"], free["VLLM_RPC_BASE_PATH"]) == ("1", str(tmp_path)), "nothing is fetched"


def test_a_node_on_devices_sees_its_own(tmp_path: Path) -> None:
    found = environment(node(device="cuda:2", tensor_parallel=2), tmp_path)
    assert found["CUDA_VISIBLE_DEVICES"] == "2,3"
    assert "OMP_NUM_THREADS" not in found


def test_nothing_is_compiled_on_processors_unless_it_is_asked_for(tmp_path: Path) -> None:
    compiling = node(vllm=VllmOptions(args=["--no-enforce-eager"]))
    assert [is_eager(one) for one in (node(), compiling, node(device="cuda:0"))] == [True, False, False]
    assert "TORCH_COMPILE_DISABLE" not in environment(compiling, tmp_path)


def test_errors_go_into_a_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_LOGGING_CONFIG_PATH", "")
    log_to(tmp_path / "errors.log")
    config = json.loads((tmp_path / "errors.json").read_text())
    assert config["handlers"]["errors"]["filename"] == str(tmp_path / "errors.log")
    assert config["loggers"]["vllm"]["handlers"] == ["stderr", "errors"]
