"""Nodes of Weaver's evaluation: two devices, Llama-3-8B on each, by constants that are calibrated once.

Six numbers of the paper give six constants; nothing else is fitted, and nothing by figure. Two of the six follow in
closed form from the dedicated node's point at 15 requests a second, one from the time of the output layer; the other
three are shares that operators reach and a delay, set so that `calibration` of a full run meets its points.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from gpu_node.graph.passes.offload.offload import offload
from gpu_node.graph.passes.optimize import optimize
from gpu_node.graph.passes.tensor_parallel import tensor_parallel
from gpu_node.graph.program import OperatorKind, Program
from gpu_node.models.architectures.families import build_program
from gpu_node.models.config import Family, ModelConfig, Rope
from services.simulator.weaving import paper
from services.simulator.weaving.decode_books import BLOCK_TOKENS
from services.simulator.weaving.operator_times import DecodeStep, DeviceSpeed, OperatorTimes
from services.simulator.weaving.sender_node import Link
from shared.config.hardware import LINK_EFFICIENCY, DataSheet, kv_tokens, model_named

_SHAPE = model_named("llama-3-8b")
_CONFIG = ModelConfig(
    Family.LLAMA,
    num_layers=_SHAPE.num_layers,
    hidden_size=_SHAPE.hidden_size,
    num_heads=_SHAPE.num_heads,
    num_kv_heads=_SHAPE.num_kv_heads,
    head_dim=_SHAPE.head_dim,
    intermediate_size=_SHAPE.feed_forward.inner_size,
    vocab_size=128_256,
    context_length=_SHAPE.context_tokens,
    norm_epsilon=1e-5,
    tied_embedding=False,
    eos_token_ids=frozenset({128_001}),
    rope=Rope(5e5),
)
NUM_LAYERS = _CONFIG.num_layers
ANSWER_BYTES = 2 * _CONFIG.q_size
"""What attention of one row makes, in bfloat16."""

# NVIDIA A100 40GB data sheet, SXM: 312 TFLOPS bfloat16, 1,555 GB/s; NVLink, 600 GB/s both ways together
A100 = DataSheet("a100-40gb", 312e12, 1_555e9, 40 * 2**30, 32e9, 3.2e9, 300e9)
# NVIDIA L40S data sheet: 362 TFLOPS bfloat16, 864 GB/s, 48 GB; PCIe 4.0 x16, 64 GB/s both ways together
L40S = DataSheet("l40s", 362e12, 864e9, 48e9, 32e9, 3.2e9, 32e9)

LAUNCH_S = 2e-6
"""Of an operator, behind another one; of a poll that finds nothing, all that it takes."""
PRODUCT_SHARE = 0.5
"""Of the peak rate that products of some hundred rows reach: 45.2 ms a token at 22 requests a second."""
KV_SHARE = 0.85
"""Of the bandwidth that attention reaches: 3.7 ms on top of the cold model's, with half of the sequences offloaded."""
HAND_OVER_S = 30e-6
"""From a write until the other device has seen it: 13 % less time per token then."""
MEAN_CONTEXT = 1_093
"""Tokens that a sequence has on average while it decodes, of Azure-Conv's as the paper cuts it."""


@cache
def _programs() -> tuple[Program, Program, Program]:
    """Plain, with attention offloaded, and what one device of two runs."""
    built = build_program(_CONFIG)
    plain = optimize(built)
    return plain, offload(plain), optimize(tensor_parallel(built, 0, 2))


@dataclass(frozen=True, slots=True)
class LlamaOnDevice:
    """One kind of device, and Llama-3-8B there."""

    device: DataSheet
    program: Program
    """Plain: what the cold model's polls and splits begin with."""
    speed: DeviceSpeed
    plain: OperatorTimes
    offloaded: OperatorTimes
    parallel: OperatorTimes
    """Of one device of two."""
    link: Link
    host_s: float
    """From the end of a step until the device has the next one."""
    num_blocks: int
    """Of keys and values beside the weights."""
    process_blocks: int
    """What a process keeps for itself, in blocks: its context, its buffers and what a step takes."""

    def attention_s(self, num: int, num_tokens: int) -> float:
        """Of one layer, for so many sequences that have so many tokens together."""
        return self.plain.one_s(OperatorKind.PAGED_ATTENTION, DecodeStep(num, num_tokens)) if num else 0.0

    def service_s(self, step: DecodeStep) -> float:
        """N: of a step's remote sequences, one layer."""
        return self.attention_s(step.num_remote, step.remote_tokens)


def llama_on(device: DataSheet) -> LlamaOnDevice:
    """By the same shares of what each data sheet says."""
    program, offloaded, parallel = _programs()
    speed = _speed(device)
    host_s = _host_s(OperatorTimes(program, _speed(A100)))
    free = _num_blocks() * kv_tokens(device, _SHAPE) / kv_tokens(A100, _SHAPE)
    return LlamaOnDevice(
        device,
        program,
        speed,
        OperatorTimes(program, speed),
        OperatorTimes(offloaded, speed),
        OperatorTimes(parallel, speed),
        Link(HAND_OVER_S, device.network_bytes_per_s * LINK_EFFICIENCY),
        host_s,
        int(free),
        process_blocks(),
    )


def _speed(device: DataSheet) -> DeviceSpeed:
    return DeviceSpeed(
        bytes_per_s=device.memory_bytes_per_s * memory_share(),
        kv_bytes_per_s=device.memory_bytes_per_s * KV_SHARE,
        flops_per_s=device.flops_per_s * PRODUCT_SHARE,
        wire_bytes_per_s=device.network_bytes_per_s * LINK_EFFICIENCY,
        launch_s=LAUNCH_S,
    )


def memory_share() -> float:
    """Of the bandwidth that products reach when they read weights, by the time of the output layer."""
    head_bytes = _CONFIG.vocab_size * _CONFIG.hidden_size * _SHAPE.weight_bytes
    return head_bytes / (paper.LM_HEAD_S - LAUNCH_S) / A100.memory_bytes_per_s


def _host_s(times: OperatorTimes) -> float:
    """What the dedicated node's step takes beside its operators."""
    batch = paper.DEDICATED_15["hot_batch"]
    return paper.DEDICATED_15["hot_tpot_s"] - times.total_s(DecodeStep(int(batch), int(batch * MEAN_CONTEXT)))


def _num_blocks() -> int:
    """Of the A100: what makes its batch fill the share that it does; a sequence's last block is half full."""
    num_used = paper.DEDICATED_15["hot_batch"] * (MEAN_CONTEXT + BLOCK_TOKENS / 2) / BLOCK_TOKENS
    return int(num_used / paper.DEDICATED_15["hot_kv_share"])


def process_blocks() -> int:
    """Of what a process may use, what is neither weights nor keys and values: by the dedicated node's point."""
    return kv_tokens(A100, _SHAPE) // BLOCK_TOKENS - _num_blocks()


def constants() -> dict[str, float]:
    """All that is calibrated."""
    bed = llama_on(A100)
    return {
        "memory_share": memory_share(),
        "kv_memory_share": KV_SHARE,
        "product_share": PRODUCT_SHARE,
        "hand_over_s": HAND_OVER_S,
        "host_s": bed.host_s,
        "kv_tokens": bed.num_blocks * BLOCK_TOKENS,
    }
