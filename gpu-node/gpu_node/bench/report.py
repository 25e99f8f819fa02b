"""What the benchmark process says on its stdout: one JSON object a line."""

from __future__ import annotations

import msgspec

from gpu_node.bench.predictors.cost_sample import CostSample
from shared.config.measured.pipeline_profile import PipelineProfile
from shared.config.measured.predictors import ShapeTables
from shared.messages.nodes.step_cost import StepCost


class ReportLine(msgspec.Struct, frozen=True, tag_field="kind", tag=str.lower):
    """Anything that it says."""


class Machine(ReportLine, frozen=True):
    """What the machine does at best with these threads; comes first."""

    num_threads: int
    cpus: list[int]
    """That the threads were pinned to; empty where they were not."""
    read_bytes_per_s: float
    onednn_flops_per_s: float | None
    """Of bfloat16 matrix products; a multiplication with its addition counts two. None where torch is not installed."""
    kernels_flops_per_s: float
    """Likewise, by our own kernels."""
    load: float
    """Processes that wanted to run, a minute's average: on a busy machine every figure is too low."""

    @property
    def flops_per_s(self) -> float:
        """The better of the two."""
        return max(self.onednn_flops_per_s or 0.0, self.kernels_flops_per_s)


class PointProgress(ReportLine, frozen=True):
    """What runs now, and tokens computed since the last time this was said."""

    doing: str
    num_rows: int = 0


class PointResult(ReportLine, frozen=True):
    """One point: the repetition of median length."""

    point: str
    seconds: float
    """From the first request's arrival to the last token."""
    all_seconds: list[float]
    """Of each repetition."""
    output_tokens_per_s: float
    first_tokens_s: float
    """Until every request has its first token."""
    decode_step_s: float | None
    """Mean, from one step's tokens to the next's, of steps in which every row is a sequence's newest token; None if no
    step was one."""
    num_steps: int
    num_decode_steps: int
    roofline_s: float
    """Least time, by `gpu_node.bench.roofline`."""
    roofline_share: float
    decode_bytes_per_s: float | None
    """Weights, keys and values that decode steps read a second; None if there was no decode step."""
    decode_read_share: float | None
    """The same of what the machine reads a second."""
    device_idle_s: float
    """How long the device had nothing in its queue, as far as the host saw it."""
    num_preemptions: int
    load: float


class ProfileStart(ReportLine, frozen=True):
    """The model is loaded; so many rows are to be computed."""

    num_rows: int


class ProfilePoint(ReportLine, frozen=True):
    """Steps of one size, as `gpu_node.bench.profiling` met them."""

    kind_of_step: str
    """``decode`` or ``prompt``."""
    num_sequences: int
    context_tokens: int
    """Of a sequence, on average."""
    num_steps: int
    measured_s: float
    """Median."""
    predicted_s: float
    """Median."""
    is_held_out: bool
    """The cost was not fitted to it."""


class ProfileResult(ReportLine, frozen=True):
    """What a model's steps cost on this node, and what moving it takes; comes last."""

    device: str
    cost: StepCost
    fit_error: float
    """Median of |predicted / measured - 1| over the steps that it was fitted to."""
    held_out_error: float
    """Likewise over steps of other sizes."""
    disk_load_s: float
    host_load_s: float
    """0.0 where weights do not stay in host memory."""
    kv_bytes_per_s: float
    """0.0 where keys and values cannot be moved."""
    load: float


class CostSamples(ReportLine, frozen=True):
    """What giving way was measured to cost, which regressions over several models are fitted to."""

    num_layers: int
    hidden_size: int
    samples: list[CostSample]


class PredictorTables(ReportLine, frozen=True):
    """What giving way costs, by regression; said before the result, where blocks can be moved."""

    tables: ShapeTables


class KernelProfile(ReportLine, frozen=True):
    """Times of operators, and what they keep beside one another; comes last."""

    profile: PipelineProfile
    load: float
    """Processes that wanted to run, a minute's average: on a busy machine every figure is too high."""


class MemoryRow(ReportLine, frozen=True):
    """One policy under one load, as `gpu_node.bench.memory` met it."""

    form: str
    """``paper``: prompts alone, swaps in the computing queue; ``chunked``; ``cpu``: chunked, on the real model."""
    device: str
    model: str
    input_tokens: int
    """Mean of the prompts."""
    max_tokens: int
    policy: str
    """`EngineOptions.preemption`."""
    order: str
    admission: str
    requests: int
    """Of each run; several means come with fewer of them where the model is really computed."""
    requests_per_s: float
    weighted_turnaround: float
    """Mean of (finish - send) / (finish - first scheduled) (AdaptiveLLM, equation 5)."""
    preemptions: int
    swapped: int
    recomputed: int
    decision_share: float
    """Processor time of all decisions, beside the run's time."""


class HitRate(msgspec.Struct, frozen=True):
    """Parts of the prompt tokens that were found, by where they were."""

    device: float
    host: float
    ssd: float


class Ttft(msgspec.Struct, frozen=True):
    """Median seconds to the first token."""

    first: float
    """Of first turns."""
    later: float
    """Of those behind them."""


class ConversationRow(ReportLine, frozen=True):
    """All conversations with some tiers."""

    row: str
    """``off``, ``host``, ``host_ssd``; ``ssd_cold``: the last turn alone, when only the SSD has what was said."""
    prompt_tokens: int
    prefill_tokens: int
    """Those of them that were computed."""
    hit_rate: HitRate
    ttft_s: Ttft
    seconds: float
    tokens_equal: bool
    """Every answer is the one without tiers."""
    num_lost: int
    """Full blocks that were not kept in host memory."""
    num_unwritten: int
    """Blocks that were not written to the SSD."""


class CopyOutRow(ReportLine, frozen=True):
    """Requests without a follow-up, with some tiers."""

    row: str
    seconds: list[float]
    """Of each run; the runs of all rows take turns."""
    copy_out_cost: float
    """Part of the throughput without tiers that is lost: one less the median of each turn's ratio."""


class PipelineRow(ReportLine, frozen=True):
    """One point in a pipeline and without."""

    point: str
    off_tok_s: float
    nano_only_tok_s: float
    """The parts of the pipeline one after another."""
    auto_tok_s: float
    predicted_gain: float
    """Of the fastest pipeline by prediction, over one operator after another; below 1, `auto` runs plainly."""
    bound_gain: float
    """By the roofline: what no overlap can exceed."""
    sequential_error: float
    overlapped_error: float
    """Of the predicted time of a full step, beside the measured one."""
    bits_equal: bool
    r: float
    """What products keep of their speed beside attention, with half of the threads each."""
    p: float
    """What attention keeps."""
    spread: float
    """Standard deviation of ``p`` over operators."""
    num_seen: int
    """Operators that ``p`` is a median of."""
    pipeline: str
    """That one, by `encode_pipeline`."""


Said = (
    Machine
    | PointProgress
    | PointResult
    | ProfileStart
    | ProfilePoint
    | ProfileResult
    | CostSamples
    | PredictorTables
    | KernelProfile
    | MemoryRow
    | ConversationRow
    | CopyOutRow
    | PipelineRow
)


def encode(line: ReportLine) -> str:
    """One line of text."""
    return msgspec.json.encode(line).decode()


_DECODER: msgspec.json.Decoder[Said] = msgspec.json.Decoder(Said)


def decode(text: str | bytes) -> Said:
    """The line again; `msgspec.DecodeError` for anything else."""
    return _DECODER.decode(text)
