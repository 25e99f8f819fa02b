"""Nodes that prefill and nodes that decode: what goes together, and what is refused, all of it at once."""

from __future__ import annotations

from typing import Any

import pytest

from shared.config.config import ClusterConfig, ConfigError, parse_config

MODELS = [{"name": "m", "source": "/m"}]


def problems(**fields: Any) -> list[str]:
    import yaml

    with pytest.raises(ConfigError) as caught:
        parse_config(yaml.safe_dump({"models": MODELS, **fields}), "text")
    return [line.strip().removeprefix("- ") for line in str(caught.value).splitlines()[1:]]


def accepted(**fields: Any) -> ClusterConfig:
    return ClusterConfig.model_validate({"models": MODELS, **fields})


def test_a_node_serves_both_phases_where_nothing_is_said() -> None:
    assert [node.phases for node in accepted().nodes] == ["both", "both"]


def test_they_go_in_pairs_of_which_either_may_be_a_pool() -> None:
    config = accepted(nodes=[{"name": "p", "phases": "prefill"}], pools=[{"name": "d", "phases": "decode"}])
    assert (config.node("p").phases, config.node("d-0").phases) == ("prefill", "decode")
    accepted(nodes=[{"name": "p", "phases": "prefill"}, {"name": "b"}])


def test_who_has_no_partner_of_its_kind_is_named() -> None:
    assert problems(nodes=[{"name": "p", "phases": "prefill"}, {"name": "b", "executor": "reference"}]) == [
        "nodes.0.phases: 'p' (prefill) has no other node with executor: cpu that decodes; add one, or set phases: both"
    ]
    assert problems(nodes=[{"name": "b"}], pools=[{"name": "d", "phases": "decode"}]) == [
        "pools.0.phases: 'd' (decode) has no other node with executor: cpu that only prefills; add one, or set phases: "
        "both"
    ]


def test_who_moves_no_kv_is_named_and_so_is_what_else_does_not_go() -> None:
    nodes = [
        {"name": "p", "phases": "prefill", "engine": "vllm"},
        {"name": "d", "phases": "decode", "executor": "reference", "tensor_parallel": 2},
        {"name": "q", "phases": "prefill"},
        {"name": "e"},
    ]
    found = problems(nodes=nodes, engine={"evicted_kv_bytes": 0, "offload": "on"}, offload={"hosts": [["q", "e"]]})
    assert [problem for problem in found if "phases" in problem] == [
        "nodes.0.phases: 'p' (prefill) hands over no KV with vllm.kv: recompute; set vllm.kv: host, or phases: both",
        "nodes.1.phases: 'd' (decode) hands over no KV with tensor_parallel: 2; set it to 1, or phases: both",
        "nodes.2.phases: 'q' (prefill) is in offload.hosts, whose nodes serve both phases; leave one of them out",
        "engine.evicted_kv_bytes: 0 leaves no room for KV that goes from nodes that prefill to nodes that decode; "
        "raise it, or set phases: both",
    ]


def test_a_pool_that_grows_and_shrinks_serves_both_phases() -> None:
    nodes = [{"name": "p", "phases": "prefill"}]
    pool = {"name": "d", "phases": "decode", "max_nodes": 2}
    accepted(nodes=nodes, pools=[pool])
    accepted(nodes=nodes, pools=[pool | {"min_nodes": 2}], scaling={"provider": "process"})
    assert problems(nodes=nodes, pools=[pool], scaling={"provider": "process"}) == [
        "pools.0.phases: 'd' (decode) is sized by requests as they come, not by their phases; set min_nodes to "
        "max_nodes"
    ]


def test_vllm_nodes_that_keep_kv_go_together() -> None:
    vllm = {"engine": "vllm", "vllm": {"kv": "host"}}
    accepted(nodes=[{"name": "p", "phases": "prefill", **vllm}, {"name": "d", "phases": "decode", **vllm}])


def test_nodes_that_follow_the_load_go_together_with_each_other_and_with_those_that_serve_one_phase() -> None:
    accepted(nodes=[{"name": "a", "phases": "auto"}, {"name": "b", "phases": "auto"}])
    accepted(nodes=[{"name": "a", "phases": "auto"}, {"name": "p", "phases": "prefill"}])
    accepted(nodes=[{"name": "a", "phases": "auto"}, {"name": "d", "phases": "decode"}])
    accepted(nodes=[], pools=[{"name": "a", "phases": "auto", "min_nodes": 2, "max_nodes": 2}])


def test_who_cannot_follow_the_load_is_named_all_of_it_at_once() -> None:
    nodes = [
        {"name": "v", "phases": "auto", "engine": "vllm"},
        {"name": "t", "phases": "auto", "executor": "reference", "tensor_parallel": 2},
        {"name": "w", "phases": "auto"},
        {"name": "b"},
    ]
    pools = [{"name": "s", "phases": "auto", "executor": "reference", "max_nodes": 3}]
    found = problems(
        nodes=nodes,
        pools=pools,
        scaling={"provider": "process"},
        engine={"evicted_kv_bytes": 0, "offload": "on"},
        offload={"hosts": [["w", "b"]]},
    )
    assert [problem for problem in found if "phases" in problem] == [
        "nodes.0.phases: 'v' (auto) hands over no KV with vllm.kv: recompute; set vllm.kv: host, or phases: both",
        "nodes.1.phases: 't' (auto) hands over no KV with tensor_parallel: 2; set it to 1, or phases: both",
        "nodes.2.phases: 'w' (auto) has no other node with executor: cpu that follows the load or serves one phase; "
        "add one, or set phases: both",
        "nodes.2.phases: 'w' (auto) is in offload.hosts, whose nodes serve both phases; leave one of them out",
        "pools.0.phases: 's' (auto) is sized by requests as they come, not by their phases; set min_nodes to max_nodes",
        "engine.evicted_kv_bytes: 0 leaves no room for KV that goes from nodes that prefill to nodes that decode; "
        "raise it, or set phases: both",
    ]
