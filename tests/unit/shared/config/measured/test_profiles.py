"""The file of measured step costs: what is in it comes back, and anything else is told from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.config.config import ClusterConfig, parse_config
from shared.config.engines.engine import ModelSpec
from shared.config.measured.profiled_costs import ProfiledCosts
from shared.config.measured.profiles import (
    MAX_PROFILES,
    Profile,
    ProfileError,
    add_profile,
    encode_profiles,
    profiled_cost,
    profiles_file,
    read_profiles,
)
from shared.config.model_specs import ModelSpecs
from shared.messages.nodes.step_cost import StepCost

CONFIG = parse_config("models: [{name: a, source: a.gguf}, {name: b, source: b.gguf}]", "test")


def profile(model: str = "a", *, step_s: float = 0.01, num_threads: int = 1, weights: str = "bfloat16") -> Profile:
    return Profile(
        model=model,
        source=f"{model}.gguf",
        weights=weights,
        device="cpu",
        executor="cpu",
        num_threads=num_threads,
        tensor_parallel=1,
        cost=StepCost(step_s, 1e-3, 1e-6, 1e-7),
        held_out_error=0.05,
        disk_load_s=1.5,
        host_load_s=0.25,
        kv_bytes_per_s=4e9,
    )


def costs(*profiles: Profile, config: ClusterConfig = CONFIG, device: str = "cpu") -> dict[str, StepCost]:
    found = {spec.name: profiled_cost(profiles, spec, config.nodes[0], device) for spec in config.models}
    return {name: cost for name, cost in found.items() if cost is not None}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "profiles.json"
    file.write_text(encode_profiles([profile("a"), profile("b")]))
    assert read_profiles(file) == [profile("a"), profile("b")]


def test_where_there_is_no_file_nothing_is_known(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"data_dir": tmp_path})
    assert profiles_file(config) == tmp_path / "profiles.json"
    assert read_profiles(profiles_file(config)) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds no profiles"),
        ("nonsense", "holds no profiles"),
        ('{"format": "treadle profiles 1"}', "missing required field `profiles`"),
        ('{"format": "x", "profiles": [], "more": 1}', "unknown field `more`"),
        ('{"format": "treadle profiles 2", "profiles": []}', "its format is 'treadle profiles 2'"),
    ],
)
def test_any_other_file_is_refused_with_advice(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "profiles.json"
    file.write_text(content)
    with pytest.raises(ProfileError, match=said) as error:
        read_profiles(file)
    assert str(file) in str(error.value)
    assert "run `treadle profile` again" in str(error.value)


def test_what_is_measured_again_replaces_what_was_measured_before() -> None:
    assert add_profile([profile("a"), profile("b")], profile("a", step_s=0.5)) == [
        profile("b"),
        profile("a", step_s=0.5),
    ]
    assert add_profile([profile(num_threads=2)], profile()) == [profile(num_threads=2), profile()]


def test_a_profile_holds_for_the_same_model_on_the_same_kind_of_node() -> None:
    assert costs(profile("b", step_s=0.5)) == {"b": StepCost(0.5, 1e-3, 1e-6, 1e-7)}
    assert costs(profile(num_threads=2), profile(weights="int8")) == {}
    other_file = parse_config("models: [{name: a, source: elsewhere.gguf}]", "test")
    assert costs(profile(), config=other_file) == {}
    assert costs(profile(), device="NVIDIA H200") == {}


def test_a_file_is_bounded() -> None:
    many = [profile(num_threads=number) for number in range(MAX_PROFILES + 1)]
    assert encode_profiles(many).count('"model"') == MAX_PROFILES


def test_what_is_measured_while_a_node_runs_counts_for_models_that_come(tmp_path: Path) -> None:
    file, specs = tmp_path / "profiles.json", ModelSpecs(CONFIG.models)
    known = ProfiledCosts(file, CONFIG.nodes[0], "cpu", specs)
    assert known.get("a") is None
    come = profile("c", step_s=0.5)
    file.write_text(encode_profiles([profile("a"), come]))
    specs.told("c", ModelSpec(name="c", source="c.gguf"))
    assert (known.get("a"), known.get("b"), known.get("c")) == (profile("a").cost, None, come.cost)


def test_a_file_that_is_damaged_while_a_node_runs_is_not_known_and_one_at_its_start_is_refused(tmp_path: Path) -> None:
    file, specs = tmp_path / "profiles.json", ModelSpecs(CONFIG.models)
    known = ProfiledCosts(file, CONFIG.nodes[0], "cpu", specs)
    file.write_text("nonsense")
    assert known.get("a") is None
    with pytest.raises(ProfileError):
        ProfiledCosts(file, CONFIG.nodes[0], "cpu", specs)
