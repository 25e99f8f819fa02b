"""Simulated devices: by published numbers, or by what was measured."""

from __future__ import annotations

from services.simulator.devices.catalogue import device
from shared.config import hardware
from shared.config.measured.profiles import Profile
from shared.messages.nodes.step_cost import StepCost

MEASURED = Profile(
    model="smollm2-135m",
    source="model.gguf",
    weights="bfloat16",
    device="cpu",
    executor="cpu",
    num_threads=1,
    tensor_parallel=1,
    cost=StepCost(0.009, 0.0005, 1e-6, 1e-7),
    held_out_error=0.05,
    disk_load_s=3.5,
    host_load_s=0.25,
    kv_bytes_per_s=2e9,
)


def test_a_profile_replaces_published_numbers() -> None:
    measured = device("cpu", ["smollm2-135m"], [MEASURED])
    model = measured.model("smollm2-135m")
    assert model.cost == MEASURED.cost
    assert (measured.load_s("smollm2-135m", "disk"), measured.load_s("smollm2-135m", "host")) == (3.5, 0.25)
    assert measured.kv_bytes_per_s == 2e9
    assert model.kv_cache_bytes == device("cpu", ["smollm2-135m"]).model("smollm2-135m").kv_cache_bytes


def test_a_profile_says_nothing_of_another_device() -> None:
    published = device("a100", ["smollm2-135m"], [MEASURED])
    chosen, shape = hardware.device_named("a100"), hardware.model_named("smollm2-135m")
    assert published.model("smollm2-135m").cost == hardware.step_cost(chosen, shape)


def test_models_that_do_not_fit_are_left_out() -> None:
    assert list(device("a10", ["mistral-7b", "vicuna-13b", "llama-70b"]).models) == ["mistral-7b"]
