"""The catalogue of devices and models: by hand, and beside what others have measured and published."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.config.hardware import (
    DEVICES,
    MODELS,
    DataSheet,
    UnknownHardwareError,
    device_named,
    fits,
    kv_tokens,
    load_s,
    model_named,
    model_rate,
    step_cost,
)
from shared.estimator.estimator import throughput
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import GroupLoad

A100, LLAMA_3_8B = DEVICES["a100"], MODELS["llama-3-8b"]
A100_40GB = replace(A100, memory_bytes_per_s=1_555e9, memory_bytes=40e9)  # NVIDIA A100 data sheet
A40 = DataSheet("a40", 149.7e12, 696e9, 48e9, 32e9, 1e9)  # NVIDIA A40 data sheet


def output_tokens_per_s(device: DataSheet, batch: int, prompt: float, output: float) -> float:
    """Of Llama 3 8B, with that many requests always there."""
    node = NodeState("n", "llama-3-8b", max_num_seqs=batch, rates=[model_rate(device, LLAMA_3_8B, source=None)])
    load = GroupLoad(
        "g", 1e6, model="llama-3-8b", mean_prompt_tokens=prompt, mean_output_tokens=output, num_waiting=1_000
    )
    return throughput(node, load)


def test_a_step_reads_weights_and_context_and_multiplies_rows() -> None:
    cost = step_cost(A100, MODELS["mistral-7b"])
    # 7.242e9 parameters less a table of 32,000 x 4,096; 2,039 GB/s · 0.8, 312 TFLOP/s · 0.6
    num_used = 7.242e9 - 131_072_000
    assert cost.step_s == pytest.approx(0.001 + 2 * num_used / 1631.2e9)
    assert cost.token_s == pytest.approx(2 * num_used / 187.2e12)
    assert cost.context_token_s == pytest.approx(131_072 / 1631.2e9)  # 2 · 32 layers · 8 heads · 128 · 2 bytes
    assert cost.attended_token_s == pytest.approx(4 * 32 * 32 * 128 / 187.2e12)


def test_a_row_of_a_mixture_is_multiplied_with_its_own_experts() -> None:
    mixtral = MODELS["mixtral-8x7b"]
    # 6 of 8 experts are idle: 32 layers of 3 · 4,096 · 14,336 each
    assert mixtral.active_parameters == 46.703e9 - 6 * 32 * 3 * 4_096 * 14_336
    assert MODELS["llama-3-8b"].active_parameters == 8.030e9
    table = 32_000 * 4_096
    cost = step_cost(A100, mixtral)
    assert cost.step_s == pytest.approx(0.001 + 2 * (46.703e9 - table) / 1631.2e9), "all experts are read"
    assert cost.token_s == pytest.approx(2 * (mixtral.active_parameters - table) / 187.2e12)


def test_keys_and_values_get_what_weights_leave() -> None:
    # 0.9 · 24 GB, less 2 GiB, less 14.484 GB; 131,072 bytes a token
    assert kv_tokens(DEVICES["a10"], MODELS["mistral-7b"]) == int((21.6e9 - 2**31 - 14.484e9) // 131_072)
    assert kv_tokens(DEVICES["a10"], MODELS["vicuna-13b"]) == 0


def test_what_fits_where() -> None:
    fitting = {
        (device.name, model.name) for device in DEVICES.values() for model in MODELS.values() if fits(device, model)
    }
    small = {"mistral-7b", "llama-3-8b", "llama-3.1-8b", "qwen2.5-7b", "smollm2-135m"}
    assert {model for device, model in fitting if device == "a10"} == small
    large = {model for device, model in fitting if device == "a100"}
    for_groups = {"llama-2-70b", "llama-3-70b", "llama-3.1-405b", "qwen2-72b", "deepseek-67b", "mixtral-8x7b"}
    assert large == set(MODELS) - for_groups - {"llama-33b"}, "Llama 70B in 4 bits"
    assert ("cpu", "smollm2-135m") in fitting


def test_of_a_mixture_a_row_multiplies_what_it_uses_and_a_step_reads_all() -> None:
    """Mixtral 8x7B, 12.879 B of 46.703 B parameters, without the 0.131 B of its table of words."""
    cost = step_cost(A100, MODELS["mixtral-8x7b"])
    assert cost.token_s == pytest.approx(2 * 12.748e9 / (312e12 * 0.6), rel=1e-3)
    assert cost.step_s == pytest.approx(0.001 + 46.572e9 * 2 / (2039e9 * 0.8), rel=1e-3)


def test_loading_takes_the_slower_of_link_and_disk() -> None:
    model = MODELS["mistral-7b"]
    assert load_s(A100, model, "host") == pytest.approx(14.484e9 / 25.6e9)
    assert load_s(A100, model, "disk") == pytest.approx(14.484e9 / 3.2e9)
    assert model_rate(A100, model, None).load_s == 0.0


@pytest.mark.parametrize(
    ("device", "batch", "prompt", "output", "published"),
    [
        pytest.param(A100_40GB, 1, 1024, 128, 75.0, id="one-request"),
        pytest.param(A100_40GB, 8, 1024, 128, 6.6 * 75.0, id="eight-requests"),
        pytest.param(A40, 50, 100, 443, 1016.6, id="a40"),
        pytest.param(A100, 512, 128, 128, 6552.6, id="tensorrt"),
    ],
)
def test_throughput_is_within_30_percent_of_what_others_have_measured(
    device: DataSheet, batch: int, prompt: float, output: float, published: float
) -> None:
    """Llama 3(.1) 8B in bfloat16, output tokens a second.

    one-request, eight-requests: vLLM on an A100 of 40 GB, 1,024 in and 128 out, "about 75 tokens/sec" and "a 6.6x gain"
    (johnmusgrave.com, "vLLM throughput-latency sweep on NVIDIA A100"). a40: vLLM, 50 requests of 100 tokens, 22,170
    tokens in 21.81 s (databasemart.com, "A40 vLLM Benchmark"). tensorrt: TensorRT-LLM on an A100, 128 in and out
    (its docs/source/performance/perf-overview.md, cited in NVIDIA/TensorRT-LLM issue 2648).
    """
    assert output_tokens_per_s(device, batch, prompt, output) == pytest.approx(published, rel=0.30)


def test_names_that_nobody_knows_are_answered_with_those_that_are_known() -> None:
    assert (device_named("a10").name, model_named("llama-70b").name) == ("a10", "llama-70b")
    with pytest.raises(UnknownHardwareError, match=r"no device 'a11' is known; there are a10, a100, a800-pcie, h100"):
        device_named("a11")
    with pytest.raises(UnknownHardwareError, match=r"no model 'gpt-5' is known; there are mistral-7b"):
        model_named("gpt-5")
