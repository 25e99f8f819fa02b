"""What is compared: forms of an engine, policies, lengths; and a run of each on a predicted device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gpu_node.bench.memory.run import Outcome, PressureRun
from gpu_node.bench.memory.workload import INPUT_TOKENS, requests
from gpu_node.engine.measures.kv_costs import MoveRates
from gpu_node.executors.predicted.executor import PredictedExecutor
from shared.config import hardware
from shared.config.engines.engine import EngineOptions, ModelSpec, Preemption
from shared.files.kv_paging import block_bytes

EngineForm = Literal["paper", "chunked", "cpu"]
NUM_DEVICE_BLOCKS, NUM_HOST_BLOCKS, BLOCK_SIZE = 128, 64, 16
"""AdaptiveLLM, §4.2."""
MAX_MODEL_LEN = NUM_DEVICE_BLOCKS * BLOCK_SIZE
MAX_NUM_SEQS = 256
VOCAB_SIZE = 50_000
PAPER_STEP_TOKENS, CHUNKED_STEP_TOKENS = 2_560, 512
"""vLLM 0.2.5's default for prompts; a usual one for chunks."""
PAPER_BYTES_PER_S = 9.5e9
"""Of copies of blocks of 16 tokens (PagedAttention, SOSP'23, figure 19a)."""
DEVICE = "a800-pcie"
LIMITS = (32, 64, 128, 256)
MODELS = ("opt-13b", "opt-30b", "llama-13b", "llama-33b")

NUM_REQUESTS, QUICK_REQUESTS = 1000, 150
"""On predicted devices; the first is AdaptiveLLM's (§4.2)."""

FIXED: tuple[Preemption, ...] = ("recompute", "swap_only", "swap")


@dataclass(frozen=True, slots=True)
class PressurePolicy:
    """What one run decides by."""

    preemption: Preemption
    order: Literal["fcfs", "fair", "slack"] = "fcfs"
    admission: Literal["peak", "greedy", "priced"] = "greedy"


POLICIES = (
    *(PressurePolicy(one) for one in FIXED),
    PressurePolicy("adaptive"),
    PressurePolicy("adaptive", order="fair"),
    PressurePolicy("adaptive", admission="peak"),
    PressurePolicy("adaptive", admission="priced"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """One row."""

    form: EngineForm
    device: str
    model: str
    input_tokens: int
    max_tokens: int
    policy: PressurePolicy
    num_requests: int = NUM_REQUESTS

    @property
    def load(self) -> tuple[str, str, str, int, int]:
        """What rows have to share to be compared."""
        return self.form, self.device, self.model, self.input_tokens, self.max_tokens


def predicted_cases(*, quick: bool) -> list[Case]:
    """Of the simulator: all limits for one model, and the paper's for the others."""
    shapes = [(MODELS[0], limit) for limit in ((64,) if quick else LIMITS)]
    shapes += [] if quick else [(model, 64) for model in MODELS[1:]]
    forms: tuple[EngineForm, ...] = ("paper", "chunked")
    return [
        Case(form, DEVICE, model, input_tokens, limit, policy, QUICK_REQUESTS if quick else NUM_REQUESTS)
        for form in forms
        for model, limit in shapes
        for input_tokens in INPUT_TOKENS
        for policy in POLICIES
    ]


@dataclass(frozen=True, slots=True)
class CpuLoad:
    """How much of a load a real model computes."""

    num_requests: int
    num_repeats: int
    """Of each policy, of which the median counts."""


CPU_LOADS = {17: CpuLoad(300, 3), 20: CpuLoad(300, 3), 340: CpuLoad(20, 3)}
"""By mean input. Of 100 short ones the end would decide: the one that gave way last runs alone for a 25th of the time.
Runs that decide alike differ by 3 % now and then, so there are medians."""
QUICK_CPU_LOADS = {17: CpuLoad(60, 1)}


def cpu_cases(model: str, *, quick: bool) -> list[tuple[CpuLoad, list[Case]]]:
    """Of the real model, with the paper's limit."""
    loads = QUICK_CPU_LOADS if quick else CPU_LOADS
    return [
        (load, [Case("cpu", "cpu", model, input_tokens, 64, policy, load.num_requests) for policy in POLICIES])
        for input_tokens, load in loads.items()
    ]


def engine_options(case: Case, token_kv_bytes: int) -> EngineOptions:
    """Of a case whose tokens take so many bytes of KV memory."""
    is_paper = case.form == "paper"
    num_bytes = block_bytes(BLOCK_SIZE, token_kv_bytes)
    return EngineOptions(
        block_size=BLOCK_SIZE,
        kv_cache_bytes=NUM_DEVICE_BLOCKS * num_bytes,
        host_kv_bytes=NUM_HOST_BLOCKS * num_bytes,
        max_num_seqs=MAX_NUM_SEQS,
        step_tokens=PAPER_STEP_TOKENS if is_paper else CHUNKED_STEP_TOKENS,
        preemption=case.policy.preemption,
        order=case.policy.order,
        admission=case.policy.admission,
        chunked_prefill=not is_paper,
        overlap_swaps=not is_paper,
    )


def run_predicted(case: Case, seed: int, advance: Callable[[int], None]) -> Outcome:
    """On a device of the catalogue, in virtual time."""
    device, shape = hardware.device_named(case.device), hardware.model_named(case.model)
    cost = hardware.step_cost(device, shape)
    bytes_per_s = PAPER_BYTES_PER_S if case.form == "paper" else hardware.kv_bytes_per_s(device)
    options = engine_options(case, shape.kv_token_bytes)
    executor = PredictedExecutor(cost, options, shape.kv_token_bytes, VOCAB_SIZE, bytes_per_s)
    spec = ModelSpec(name=case.model, source="", max_model_len=MAX_MODEL_LEN)
    load = requests(case.num_requests, case.input_tokens, case.max_tokens, seed)
    return PressureRun(executor, options, spec, load, cost, MoveRates(bytes_per_s, bytes_per_s)).outcome(advance)
