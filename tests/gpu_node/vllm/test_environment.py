"""What vLLM is told by its environment."""

from __future__ import annotations

import json
import logging
import logging.config
from pathlib import Path

import pytest

from gpu_node.vllm.installation.environment import environment, is_eager, log_to
from shared.config.nodes.nodes import NodeSpec
from shared.config.nodes.vllm import VllmOptions


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


def test_lines_are_json_and_errors_go_into_a_file_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VLLM_LOGGING_CONFIG_PATH", "")
    log_to(tmp_path / "errors.log", "node-0")
    logger = logging.getLogger("vllm.some.part")
    try:
        logging.config.dictConfig(json.loads((tmp_path / "errors.json").read_text()))
        logger.info("nobody is to hear that")
        logger.warning("it is %s", "slow")
        logger.error("no room")
    finally:
        for handler in logging.getLogger("vllm").handlers[:]:
            logging.getLogger("vllm").removeHandler(handler)
            handler.close()
    said = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(one["level"], one["event"], one["service"], one["instance"]) for one in said] == [
        ("warning", "it is slow", "engine", "node-0"),
        ("error", "no room", "engine", "node-0"),
    ]
    assert (tmp_path / "errors.log").read_text() == "ERROR vllm.some.part: no room\n"
