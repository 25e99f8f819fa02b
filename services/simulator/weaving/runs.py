"""One point of an evaluation: two nodes for some minutes, with what is measured once they are warm."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from gpu_node.graph.passes.offload.poll_wait import expected_wait_s
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.passes.offload.split import split_operators
from gpu_node.graph.passes.offload.split_plan import splittable
from gpu_node.graph.passes.offload.splitting import OffloadProfile, Splitting
from gpu_node.graph.program import OperatorKind
from services.simulator.weaving.arrivals import PoissonArrivals, RequestLengths
from services.simulator.weaving.decode_books import DecodeBooks
from services.simulator.weaving.decode_record import DecodeRecord
from services.simulator.weaving.llama_on_device import ANSWER_BYTES, NUM_LAYERS, LlamaOnDevice
from services.simulator.weaving.operator_times import DecodeStep, OperatorTimes
from services.simulator.weaving.parallel_pair import ParallelModel, parts_s, run
from services.simulator.weaving.receiver_node import ReceiverNode
from services.simulator.weaving.sender_node import RemoteAttention, SenderNode, Waits

COLD_SHARE = 0.15
"""Of the cold model's device, the blocks that stay its own."""
OBSERVE_S = 1.0
"""How often profiles are looked at."""
HOT_SEED, COLD_SEED = 1, 101


class Control(StrEnum):
    """How a task gets onto a busy receiver (figure 7a)."""

    HOST = "host"
    """Behind the whole step that the host has given to the device."""
    POLLS = "polls"
    SPLITS = "splits"
    """With polls."""


@dataclass(frozen=True, slots=True)
class OfferedLoad:
    """What is asked of both models."""

    hot_per_s: float
    cold_per_s: float
    lengths: RequestLengths
    is_full: bool = False
    """A request always waits for the hot model: its rate is the most that it can do."""


@dataclass(frozen=True, slots=True)
class RunLength:
    """Of a run, in virtual time."""

    warm_s: float
    measured_s: float


@dataclass(frozen=True, slots=True)
class MeasuredPoint:
    """What was measured."""

    hot_per_s: float
    """Requests that ended; of one that is full, those that its tokens make up."""
    hot_batch: float
    hot_tpot_s: float
    hot_kv_share: float
    remote_kv_share: float
    """Of the receiver's blocks, those that hold keys and values of the hot model."""
    remote_share: float
    """Of the hot model's sequences."""
    cold_tpot_s: float
    served_share: float
    """Of the receiver's time."""
    wait_s: float
    """Of a task, until it is begun."""
    formula_wait_s: float
    """Equation 3 with no slack, times the share of time in which the receiver computes."""
    late_s: float
    """That the sender waited for an answer, a task."""


def dedicated(bed: LlamaOnDevice, load: OfferedLoad, length: RunLength) -> MeasuredPoint:
    """Each model alone on its device."""
    return woven(bed, load, length, 0.0)


def woven(
    bed: LlamaOnDevice, load: OfferedLoad, length: RunLength, ratio: float, control: Control = Control.SPLITS
) -> MeasuredPoint:
    """The cold model's device serves the hot one's remote attention."""
    pair = _Pair(bed, load, ratio, control)
    pair.run(length.warm_s)
    pair.clear()
    pair.run(length.warm_s + length.measured_s)
    return pair.point()


def parallel(bed: LlamaOnDevice, load: OfferedLoad, length: RunLength) -> MeasuredPoint:
    """Both models on both devices, by tensor parallelism: each device has a process of each."""
    num_cold = int(COLD_SHARE * bed.num_blocks)
    hot_arrivals, cold_arrivals = _arrivals(load)
    hot = ParallelModel(
        bed.parallel,
        bed.host_s,
        bed.link,
        DecodeBooks(2 * (bed.num_blocks - bed.process_blocks) - num_cold),
        hot_arrivals,
        is_full=load.is_full,
    )
    cold = ParallelModel(bed.parallel, bed.host_s, bed.link, DecodeBooks(num_cold), cold_arrivals)
    now = run([hot, cold], 0.0, length.warm_s)
    for model in (hot, cold):
        model.record.clear()
    run([hot, cold], now, length.warm_s + length.measured_s)
    return _point(load, hot.record, cold.record)


def parallel_overhead(bed: LlamaOnDevice, batch: float, num_tokens: float) -> float:
    """What cutting the model in two costs: time of a step on two devices over half the time on one, less one."""
    step = DecodeStep(round(batch), round(num_tokens))
    return sum(parts_s(bed.parallel, bed.link, step)) / (bed.plain.total_s(step) / 2) - 1


def _arrivals(load: OfferedLoad) -> tuple[PoissonArrivals, PoissonArrivals]:
    return (
        PoissonArrivals(load.hot_per_s, load.lengths, HOT_SEED),
        PoissonArrivals(load.cold_per_s, load.lengths, COLD_SEED),
    )


class _Pair:
    """A sender and its receiver, whose operators are split anew as profiles drift."""

    def __init__(self, bed: LlamaOnDevice, load: OfferedLoad, ratio: float, control: Control) -> None:
        self._bed, self._load, self._control = bed, load, control
        self._is_woven = ratio > 0
        num_cold = int(COLD_SHARE * bed.num_blocks)
        hot_arrivals, cold_arrivals = _arrivals(load)
        is_polled = self._is_woven and control is not Control.HOST
        self._times = OperatorTimes(insert_polls(bed.program), bed.speed) if is_polled else bed.plain
        self._splitting = Splitting(splittable(bed.program))
        self._receiver = ReceiverNode(lambda: self._times, bed.host_s, cold_arrivals, DecodeBooks(num_cold))
        self._sender = SenderNode(
            bed.plain,
            bed.offloaded,
            bed.host_s,
            DecodeBooks(
                bed.num_blocks, num_remote_blocks=bed.num_blocks - num_cold if self._is_woven else 0, ratio=ratio
            ),
            hot_arrivals,
            RemoteAttention(self._receiver, bed.link, bed.service_s, ANSWER_BYTES),
        )
        self._formula_s, self._num_observed = 0.0, 0
        self._served_before_s, self._cleared_s = 0.0, 0.0

    def run(self, until_s: float) -> None:
        """Let time pass."""
        while self._sender.now < until_s:
            self._sender.run(min(until_s, self._sender.now + OBSERVE_S), is_full=self._load.is_full)
            self._receiver.advance(self._sender.now)
            self._observe()

    def clear(self) -> None:
        """Measure from now on."""
        self._sender.record.clear()
        self._receiver.record.clear()
        self._sender.waits = Waits()
        self._formula_s, self._num_observed = 0.0, 0
        self._served_before_s, self._cleared_s = self._receiver.served_s, self._sender.now

    def _observe(self) -> None:
        hot, cold = self._sender.books.shape, self._receiver.books.shape
        if not self._is_woven or not hot.num_remote or not cold.num_rows:
            return
        bed = self._bed
        profile = OffloadProfile(
            bed.plain.seconds(cold),
            local_s=bed.attention_s(hot.num_local, hot.local_tokens),
            service_s=bed.service_s(hot) + 2 * bed.link.delay_s,
            sender_step_s=self._sender.record.step_s,
            num_tasks=NUM_LAYERS,
        )
        if self._control is Control.SPLITS and self._splitting.observe(profile):
            split = split_operators(bed.program, self._splitting.plan)
            self._times = OperatorTimes(insert_polls(split), bed.speed)
        self._formula_s += self._formula_wait_s()
        self._num_observed += 1

    def _formula_wait_s(self) -> float:
        """Equation 3 without slack: of what lies between two polls; nothing while the receiver waits for its host."""
        cold = self._receiver.books.shape
        ends_s = self._times.ends_s(cold)
        looks = [0.0, *(ends_s[place] for place in self._times.places(OperatorKind.POLL)), ends_s[-1]]
        spans_s = [end - start for start, end in pairwise(looks) if end > start]
        return expected_wait_s(spans_s, 0.0) * ends_s[-1] / (ends_s[-1] + self._bed.host_s)

    def point(self) -> MeasuredPoint:
        """What was measured since."""
        served_s = self._receiver.served_s - self._served_before_s
        return _point(
            self._load,
            self._sender.record,
            self._receiver.record,
            self._sender.waits,
            served_share=served_s / (self._sender.now - self._cleared_s),
            formula_wait_s=self._formula_s / max(1, self._num_observed),
        )


def _point(
    load: OfferedLoad,
    hot: DecodeRecord,
    cold: DecodeRecord,
    waits: Waits | None = None,
    served_share: float = 0.0,
    formula_wait_s: float = 0.0,
) -> MeasuredPoint:
    num_tasks = max(1, waits.num) if waits else 1
    mean_output = sum(answer for _, answer in load.lengths) / len(load.lengths)
    return MeasuredPoint(
        hot_per_s=hot.num_tokens / hot.steps_s / mean_output,
        hot_batch=hot.batch,
        hot_tpot_s=hot.tpot_s,
        hot_kv_share=hot.kv_share,
        remote_kv_share=hot.remote_kv_share * (1 - COLD_SHARE),
        remote_share=hot.remote_share,
        cold_tpot_s=cold.tpot_s,
        served_share=served_share,
        wait_s=waits.blocked_s / num_tasks if waits else 0.0,
        formula_wait_s=formula_wait_s,
        late_s=waits.late_s / num_tasks if waits else 0.0,
    )
