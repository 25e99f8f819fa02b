"""Nodes whose engine is vLLM, in the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.config.config import parse_config
from shared.config.nodes.vllm import OWNED_ARGUMENTS, owned_arguments
from tests.unit.shared.config.test_config import problems


def test_a_node_has_the_environment_of_the_makefile_unless_it_says_another() -> None:
    text = "nodes: [{name: a, engine: vllm}, {name: b, engine: vllm, vllm: {python: p, args: [--dtype, float32]}}]"
    plain, other = parse_config(text, "ok").nodes
    assert (plain.kind, plain.vllm_options.python) == ("vllm", Path("build/vllm/bin/python"))
    assert (other.vllm_options.python, other.vllm_options.args) == (Path("p"), ["--dtype", "float32"])


def test_evicted_requests_leave_with_their_kv_where_that_is_asked_for() -> None:
    text = "nodes: [{name: a}, {name: b, engine: vllm}, {name: c, engine: vllm, vllm: {kv: host}}]"
    assert [node.keeps_kv for node in parse_config(text, "ok").nodes] == [False, False, True]


def test_what_does_not_go_with_vllm_is_reported_at_once() -> None:
    text = """
        nodes:
          - {name: a, engine: vllm, executor: reference}
          - {name: b, engine: vllm, device: a100}
          - {name: c, vllm: {python: p}}
          - {name: d, engine: vllm, device: "cuda:0", num_threads: 2, cpus: [0, 1]}
          - {name: e, engine: vllm, device: "cuda:0", vllm: {args: [--port, "80", --max_num_seqs=3]}}
          - {name: f, engine: vllm, cpus: [0, 1]}
    """
    assert problems(text) == [
        "nodes.0: executor: reference belongs to engine: treadle; leave it out with engine: vllm",
        "nodes.1: device: a100 can only be predicted; engine: vllm computes on cpu or cuda:N",
        "nodes.2: vllm: these options are for engine: vllm; set that too, or leave them out",
        "nodes.3: num_threads: 2 is for processors; leave it out with device: cuda:0",
        "nodes.3: device: cuda:0 has no threads that compute; leave cpus empty",
        "nodes.4.vllm.args: --port is not taken: gateway.port decides it; leave it out",
        "nodes.4.vllm.args: --max-num-seqs is not taken: engine.max_num_seqs decides it; leave it out",
        "nodes.5: cpus has 2 entries, num_threads is 1: name one CPU a thread, or none to leave the choice to the "
        "system",
    ]


def test_an_nvidia_device_belongs_to_one_node_of_whatever_engine() -> None:
    text = "nodes: [{name: a, executor: cuda, device: 'cuda:0'}, {name: b, engine: vllm, device: 'cuda:0'}]"
    assert problems(text) == ["nodes.1.device: cuda:0 belongs to 'a' already"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("--port", "--port"),
        ("--port=80", "--port"),
        ("--max_model_len", "--max-model-len"),
        ("--max-model", "--max-model"),
        ("--no-async-scheduling", "--no-async-scheduling"),
        ("--kv-transfer-config.kv_connector=x", "--kv-transfer-config"),
        ("-tp", "-tp"),
        ("--runner=pooling", "--runner"),
        ("--convert", "--convert"),
        ("--pooler-config.pooling_type", "--pooler-config"),
    ],
)
def test_an_owned_argument_is_known_however_it_is_written(text: str, name: str) -> None:
    (problem,) = owned_arguments(["--dtype", text, "8"])
    assert problem.startswith(f"{name} is not taken: ")


def test_other_arguments_are_vllm_s_own_affair() -> None:
    assert owned_arguments(["--dtype", "float32", "--quantization=awq", "--model-impl", "vllm", "-8", "--"]) == []
    assert all(name.startswith("-") for name in OWNED_ARGUMENTS)
