"""Devices and models by their published numbers, and the step costs that follow from these.

What stands behind a step is NanoFlow's (OSDI'25, §3): bytes over bandwidth, operations over compute rate. No device
reaches its peaks; the shares that it does reach are the constants below. So the simulator can run hardware that is not
there. What is there is measured: `treadle profile`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from shared.errors import OperatorError
from shared.messages.nodes.step_cost import ModelRate, StepCost

COMPUTE_EFFICIENCY = 0.6
"""Of the peak rate that products of some hundred rows reach: 50-70 % is what serving engines report as utilisation."""
MEMORY_EFFICIENCY = 0.8
"""Of the peak bandwidth that reading weights, keys and values reaches."""
STEP_OVERHEAD_S = 0.001
"""Of launching a step, and of what no other step hides."""
LINK_EFFICIENCY = 0.8
"""Of the link to the host that copies from pinned memory reach."""
MEMORY_SHARE = 0.9
"""Of a device's memory that may be used: vLLM's default ``gpu_memory_utilization``."""
ACTIVATION_BYTES = 2 << 30
"""Of that, for buffers and kernels, whatever the model."""

Source = Literal["host", "disk"]
"""Where weights are when they are loaded."""


class UnknownHardwareError(OperatorError, ValueError):
    """A device or a model that is not in the catalogue; the text names those that are."""


@dataclass(frozen=True, slots=True)
class DataSheet:
    """What a data sheet says of a device, and of the machine around it."""

    name: str
    flops_per_s: float
    """Peak of bfloat16 products, dense; a multiplication with its addition counts two."""
    memory_bytes_per_s: float
    memory_bytes: float
    host_bytes_per_s: float
    """Peak of the link to host memory, one way."""
    disk_bytes_per_s: float
    """Of reading weights from the machine's own disk."""
    network_bytes_per_s: float = 0.0
    """Peak of the links to other devices of the machine, one way; 0 where there are none."""


@dataclass(frozen=True, slots=True)
class FeedForward:
    """The half of a layer behind its attention."""

    inner_size: int
    num_products: int = 3
    """Up, gate and down; 2 without a gate."""
    num_experts: int = 1
    num_chosen: int = 1
    """Experts that a row goes through."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What a model's card and configuration say."""

    name: str
    num_parameters: float
    num_embedding_parameters: float
    """Of the table that only looks up rows; 0 where it is also the output layer."""
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_tokens: int
    """Of prompt and answer together, as the model's own configuration has it."""
    hidden_size: int
    feed_forward: FeedForward
    weight_bytes: float = 2.0
    """Of one parameter; 2 is bfloat16."""

    @property
    def active_parameters(self) -> float:
        """Those that one row is multiplied with: of the experts of a mixture, those that it goes through."""
        part = self.feed_forward
        num_idle = part.num_experts - part.num_chosen
        return self.num_parameters - (
            num_idle * self.num_layers * part.num_products * self.hidden_size * part.inner_size
        )

    @property
    def load_bytes(self) -> float:
        """All weights."""
        return self.num_parameters * self.weight_bytes

    @property
    def kv_token_bytes(self) -> int:
        """Keys and values of one token, in bfloat16."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * 2


_DISK_BYTES_PER_S = 3.2e9  # an NVMe drive of a server: Samsung PM983 data sheet, sequential read

DEVICES = {
    device.name: device
    for device in (
        # NVIDIA A10 data sheet: 125 TFLOPS bfloat16, 600 GB/s, 24 GB; PCIe 4.0 x16, 64 GB/s both ways together
        DataSheet("a10", 125e12, 600e9, 24e9, 32e9, _DISK_BYTES_PER_S),
        # NVIDIA A100 80GB data sheet, SXM: 312 TFLOPS bfloat16, 2,039 GB/s; PCIe 4.0 x16;
        # NVLink, 600 GB/s both ways together
        DataSheet("a100", 312e12, 2_039e9, 80e9, 32e9, _DISK_BYTES_PER_S, 300e9),
        # NVIDIA A800 80GB PCIe data sheet: 312 TFLOPS bfloat16, 1,935 GB/s; PCIe 4.0 x16, 64 GB/s both ways together;
        # NVLink, 400 GB/s both ways together
        DataSheet("a800-pcie", 312e12, 1_935e9, 80e9, 32e9, _DISK_BYTES_PER_S, 200e9),
        # NVIDIA H100 data sheet, SXM: 1,979 TFLOPS bfloat16 with sparsity, half of it without, 3.35 TB/s, 80 GB; PCIe
        # 5.0 x16, 128 GB/s both ways together; NVLink, 900 GB/s both ways together
        DataSheet("h100", 989.5e12, 3_350e9, 80e9, 64e9, _DISK_BYTES_PER_S, 450e9),
        # NVIDIA H200 data sheet, SXM: 1,979 TFLOPS bfloat16 with sparsity, half of it without, 4.8 TB/s, 141 GB; PCIe
        # 5.0 x16, 128 GB/s both ways together; NVLink, 900 GB/s both ways together
        DataSheet("h200", 989.5e12, 4_800e9, 141e9, 64e9, _DISK_BYTES_PER_S, 450e9),
        # two cores with AVX-512 of the machine that docs/performance.md measures, until `treadle profile` has run
        DataSheet("cpu", 0.43e12, 30e9, 16e9, 10e9, 1e9),
    )
}

MODELS = {
    model.name: model
    for model in (
        # model card of Mistral-7B-v0.1: 7.24 B, 32 layers of 4,096, 32 heads, 8 for keys, vocabulary 32,000
        ModelShape("mistral-7b", 7.242e9, 32_000 * 4_096, 32, 32, 8, 128, 32_768, 4_096, FeedForward(14_336)),
        # model card of vicuna-13b-v1.5, Llama 2 of 13.0 B: 40 layers of 5,120, 40 heads, all with keys
        ModelShape("vicuna-13b", 13.016e9, 32_000 * 5_120, 40, 40, 40, 128, 4_096, 5_120, FeedForward(13_824)),
        # model card of Llama-2-70b-hf: 69.0 B, 80 layers of 8,192, 64 heads, 8 for keys. Weights of 4 bits
        # with a scale and a zero for each 128, so that it fits one card of 80 GB; products in 16 bits
        ModelShape(
            *("llama-70b", 68.977e9, 32_000 * 8_192, 80, 64, 8, 128, 4_096, 8_192, FeedForward(28_672)),
            weight_bytes=0.5 + 4 / 128,
        ),
        # the same in bfloat16, for groups of devices
        ModelShape("llama-2-70b", 68.977e9, 32_000 * 8_192, 80, 64, 8, 128, 4_096, 8_192, FeedForward(28_672)),
        # configurations of facebook/opt-13b and opt-30b: 40 layers of 5,120, 40 heads; 48 of 7,168, 56 heads; the table
        # of words is the output layer
        ModelShape("opt-13b", 12.853e9, 0, 40, 40, 40, 128, 2_048, 5_120, FeedForward(20_480, 2)),
        ModelShape("opt-30b", 29.975e9, 0, 48, 56, 56, 128, 2_048, 7_168, FeedForward(28_672, 2)),
        # Llama (Touvron et al., 2023, table 2): 13.0 B, 40 layers of 5,120, 40 heads; 32.5 B, 60 of 6,656, 52 heads
        ModelShape("llama-13b", 13.016e9, 32_000 * 5_120, 40, 40, 40, 128, 2_048, 5_120, FeedForward(13_824)),
        ModelShape("llama-33b", 32.529e9, 32_000 * 6_656, 60, 52, 52, 128, 2_048, 6_656, FeedForward(17_920)),
        # model card of Meta-Llama-3-8B: 8.03 B, 32 layers of 4,096, 32 heads, 8 for keys, 128,256 words
        ModelShape("llama-3-8b", 8.030e9, 128_256 * 4_096, 32, 32, 8, 128, 8_192, 4_096, FeedForward(14_336)),
        # model cards of Llama-3.1-8B and 70B: as Llama 3, 131,072 tokens. Weights of the large one as of llama-70b
        ModelShape("llama-3.1-8b", 8.030e9, 128_256 * 4_096, 32, 32, 8, 128, 131_072, 4_096, FeedForward(14_336)),
        ModelShape(
            *("llama-3.1-70b", 70.554e9, 128_256 * 8_192, 80, 64, 8, 128, 131_072, 8_192, FeedForward(28_672)),
            weight_bytes=0.5 + 4 / 128,
        ),
        # configurations of Qwen2.5-7B, 32B and 72B, 152,064 words, 131,072 tokens; weights of the large one likewise
        ModelShape("qwen2.5-7b", 7.616e9, 152_064 * 3_584, 28, 28, 4, 128, 131_072, 3_584, FeedForward(18_944)),
        ModelShape("qwen2.5-32b", 32.764e9, 152_064 * 5_120, 64, 40, 8, 128, 131_072, 5_120, FeedForward(27_648)),
        ModelShape(
            *("qwen2.5-72b", 72.706e9, 152_064 * 8_192, 80, 64, 8, 128, 131_072, 8_192, FeedForward(29_568)),
            weight_bytes=0.5 + 4 / 128,
        ),
        # configurations of Meta-Llama-3-70B (70.6 B) and Llama-3.1-405B (405.9 B), 128,256 words
        ModelShape("llama-3-70b", 70.554e9, 128_256 * 8_192, 80, 64, 8, 128, 8_192, 8_192, FeedForward(28_672)),
        ModelShape(
            "llama-3.1-405b", 405.853e9, 128_256 * 16_384, 126, 128, 8, 128, 131_072, 16_384, FeedForward(53_248)
        ),
        # configurations of Qwen2-72B (72.7 B, 152,064 words) and deepseek-llm-67b-base (67.4 B, 102,400 words)
        ModelShape("qwen2-72b", 72.706e9, 152_064 * 8_192, 80, 64, 8, 128, 32_768, 8_192, FeedForward(29_568)),
        ModelShape("deepseek-67b", 67.425e9, 102_400 * 8_192, 95, 64, 8, 128, 4_096, 8_192, FeedForward(22_016)),
        # configuration of Mixtral-8x7B-v0.1: 46.7 B, 8 experts of which a row goes through 2
        ModelShape(
            "mixtral-8x7b", 46.703e9, 32_000 * 4_096, 32, 32, 8, 128, 32_768, 4_096, FeedForward(14_336, 3, 8, 2)
        ),
        # model card of SmolLM2-135M: 134.5 M, 30 layers of 576, 9 heads, 3 for keys; the table of words
        # is the output layer
        ModelShape("smollm2-135m", 134.5e6, 0, 30, 9, 3, 64, 8_192, 576, FeedForward(1_536)),
    )
}


def device_named(name: str) -> DataSheet:
    """A device of the catalogue, or `UnknownHardwareError`."""
    if name not in DEVICES:
        raise UnknownHardwareError(f"no device {name!r} is known; there are {', '.join(DEVICES)}")
    return DEVICES[name]


def model_named(name: str) -> ModelShape:
    """A model of the catalogue, or `UnknownHardwareError`."""
    if name not in MODELS:
        raise UnknownHardwareError(f"no model {name!r} is known; there are {', '.join(MODELS)}")
    return MODELS[name]


def step_cost(device: DataSheet, model: ModelShape) -> StepCost:
    """Seconds of a step: its weights read, its rows multiplied, its context read and attended to."""
    bytes_per_s = device.memory_bytes_per_s * MEMORY_EFFICIENCY
    flops_per_s = device.flops_per_s * COMPUTE_EFFICIENCY
    num_used = model.num_parameters - model.num_embedding_parameters
    return StepCost(
        step_s=STEP_OVERHEAD_S + num_used * model.weight_bytes / bytes_per_s,
        token_s=2 * (model.active_parameters - model.num_embedding_parameters) / flops_per_s,
        context_token_s=model.kv_token_bytes / bytes_per_s,
        attended_token_s=4 * model.num_layers * model.num_heads * model.head_dim / flops_per_s,
    )


def kv_bytes(device: DataSheet, model: ModelShape) -> float:
    """Memory that the weights leave for keys and values; negative where they do not fit."""
    return device.memory_bytes * MEMORY_SHARE - ACTIVATION_BYTES - model.load_bytes


def kv_tokens(device: DataSheet, model: ModelShape) -> int:
    """Tokens whose keys and values fit beside the weights."""
    return max(0, int(kv_bytes(device, model) // model.kv_token_bytes))


def fits(device: DataSheet, model: ModelShape, num_tokens: int = 4096) -> bool:
    """Whether the device can serve the model: its weights, and one sequence of so many tokens."""
    return kv_tokens(device, model) >= num_tokens


def load_s(device: DataSheet, model: ModelShape, source: Source) -> float:
    """From the start of a load until the model could serve. What comes from disk passes the host as it is read."""
    host_s = model.load_bytes / (device.host_bytes_per_s * LINK_EFFICIENCY)
    return host_s if source == "host" else max(host_s, model.load_bytes / device.disk_bytes_per_s)


def kv_bytes_per_s(device: DataSheet) -> float:
    """Rate at which keys and values move between the device and host memory."""
    return device.host_bytes_per_s * LINK_EFFICIENCY


def model_rate(device: DataSheet, model: ModelShape, source: Source | None) -> ModelRate:
    """What the model can do on the device; ``source`` is where its weights are, None for on the device."""
    return ModelRate(
        model=model.name,
        cost=step_cost(device, model),
        kv_tokens=kv_tokens(device, model),
        kv_token_bytes=model.kv_token_bytes,
        load_s=0.0 if source is None else load_s(device, model, source),
    )
