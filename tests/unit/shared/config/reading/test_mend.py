"""Whatever a configuration looks like: its problems are found, none of them twice, and none that is not there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.config.config import ClusterConfig, ConfigError, parse_config
from shared.config.reading.mend import inspect

SECRET = "sk-very-secret"
SOUND: dict[str, Any] = {
    "models": [
        {"name": "m", "source": "m.gguf", "max_model_len": 512},
        {"name": "n", "source": "n.gguf", "adapters": [{"name": "o", "source": "o"}, {"name": "p", "source": "p"}]},
    ],
    "slo_classes": {"interactive": {"ttft_s": 1, "late": "refuse"}, "batch": {}},
    "nodes": [{"name": "a", "num_threads": 2, "cpus": [0, 1]}, {"name": "b", "executor": "cuda", "device": "cuda:0"}],
    "pools": [{"name": "p", "min_nodes": 1, "max_nodes": 2}],
    "scaling": {"provider": "process"},
    "engine": {"preemption": "swap", "host_kv_bytes": 1 << 20, "kv_cache_bytes": 1 << 20},
    "gateway": {"default_slo": "batch", "max_body_bytes": 2048, "max_inflight_bytes": 1 << 20},
    "tenants": {"acme": {"weight": 2}},
    "keys": [{"key": SECRET, "tenant": "acme", "slo_classes": ["batch"]}],
    "admin_port": 9400,
}
Place = tuple[str | int, ...]


def places(value: Any, before: Place = ()) -> list[Place]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, one in inner for place in [(*before, key), *places(one, (*before, key))]]


WRONG: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 100_000), st.sampled_from(["", "x y", "a", "cuda", "predicted"])
) | st.sampled_from([[], {}, [None], [[]], [{}], {"x": 1}, {1: 2}, {None: {}}])


def changed(value: Any, place: Place, put: Any) -> Any:
    """A copy in which something else stands at a place."""
    if not place:
        return put
    key, *rest = place
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    parts = {one: changed(part, tuple(rest), put) if one == key else part for one, part in inner}
    return parts if isinstance(value, dict) else list(parts.values())


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "f")
    return [line.removeprefix("  - ") for line in str(caught.value).splitlines()[1:]]


def test_the_sound_one_is_sound() -> None:
    found = inspect(ClusterConfig, SOUND)
    assert (found.problems, found.config) == ([], ClusterConfig.model_validate(SOUND))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_value_anywhere_is_a_problem_or_none(data: st.DataObject) -> None:
    values = SOUND
    for _ in range(data.draw(st.integers(1, 3))):
        values = changed(values, data.draw(st.sampled_from(places(values))), data.draw(WRONG))
    found = inspect(ClusterConfig, values)
    try:
        ClusterConfig.model_validate(values)
    except ValidationError:
        assert found.problems
    else:
        assert not found.problems
    assert len(set(found.problems)) == len(found.problems)
    assert SECRET not in "\n".join(found.problems)


def test_what_was_taken_out_raises_no_problem_of_its_own() -> None:
    assert problems("slo_classes: {interactive: {ttft_s: 0, late: refuse}}") == [
        "slo_classes.interactive.ttft_s: Input should be greater than 0"
    ]
    assert problems("nodes: [{name: a, executor: nvidia, device: 'cuda:0'}]") == [
        "nodes.0.executor: Input should be 'cpu', 'cuda', 'reference' or 'predicted'"
    ]
    assert problems("pools: none\nscaling: {provider: process}") == ["pools: Input should be a valid list"]
    assert problems("slo_classes: []\ngateway: {default_slo: gold}") == [
        "slo_classes: Input should be a valid dictionary"
    ]


def test_a_key_that_stands_in_the_wrong_section_is_told_where_it_belongs() -> None:
    assert problems("block_size: 4\ngateway: {num_threads: 1}") == [
        "gateway.num_threads: unknown key here; did you mean 'nodes.0.num_threads'?",
        "block_size: unknown key here; did you mean 'engine.block_size'?",
    ]


def test_keys_that_are_there_twice_are_told_with_their_places() -> None:
    assert problems("admin_port: 1\nnodes:\n  - name: a\n    name: b\nadmin_port: 2\n") == [
        "admin_port: there twice, in line 5, column 1",
        "name: there twice, in line 4, column 5",
    ]
    merged = "nodes: [&first {name: a, num_threads: 2}, {<<: *first, name: b}]"
    assert [node.num_threads for node in parse_config(merged, "f").nodes] == [2, 2]
