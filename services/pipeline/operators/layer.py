"""One layer as operators of lanes: what depends on what, on which rows, and how long each takes alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from services.pipeline.operators.times import LayerTimes, Line
from shared.pipelines.batch import DenseBatch
from shared.pipelines.lanes import ResourceLane


@dataclass(frozen=True, slots=True)
class LayerOperator:
    """One operator of every layer, on rows [first_row, end_row) of the batch."""

    name: str
    lane: ResourceLane
    first_row: int
    end_row: int
    time: Line
    after: tuple[tuple[str, int], ...] = ()
    """Operators that it reads from, and how many layers back: 0 or 1."""

    @property
    def num_rows(self) -> int:
        """Of the whole operator."""
        return self.end_row - self.first_row


@dataclass(frozen=True, slots=True)
class NanoOperator:
    """A part of an operator: the same on some of its rows."""

    operator: str
    lane: ResourceLane
    first_row: int
    end_row: int
    best_s: float
    """Alone on the device."""


@dataclass(frozen=True, slots=True)
class Edge:
    """``child`` of a layer needs ``parent`` of the layer ``lag`` back; indices of nano-operators."""

    parent: int
    child: int
    lag: int


@dataclass(frozen=True, slots=True)
class LayerLayout:
    """What a search may choose of the operators themselves."""

    num_gathered: int
    """Of a group of devices: so many rows are gathered before and after the product O; the others are multiplied with
    other parts of its weight and reduced after it. The two ways of NanoFlow's §4.1.2."""
    is_spread: bool = False
    """Decodes come among prefill rows, so that each part of a batch has as many for its size; else they come first."""


Cuts = Mapping[str, Sequence[int]]
"""By operator, the rows at which it is cut; none: one part."""


def layer_operators(
    times: LayerTimes, batch: DenseBatch, num_devices: int, layout: LayerLayout, *, is_offloaded: bool = False
) -> list[LayerOperator]:
    """The operators of a layer, in an order in which they could run one after another."""
    num_gathered = layout.num_gathered
    rows = batch.num_rows
    is_alone = num_devices == 1
    num_normed = rows if times.norm.row_s else 0  # of a profile, norms are within the products behind them
    last_product = "UGD" if times.down is None else "D"
    last = (("AttnNorm", 0) if num_normed else (last_product, 1)) if is_alone else ("UGD.AR", 1)
    operators = [
        LayerOperator(
            *("AttnNorm", ResourceLane.MEMORY, 0, num_normed if is_alone else 0, times.norm), ((last_product, 1),)
        ),
        LayerOperator("KQV", ResourceLane.COMPUTE, 0, rows, times.kqv, (last,)),
        *_attention(times, batch, layout.is_spread),
        LayerOperator("Copy", ResourceLane.COPY, 0, rows if is_offloaded else 0, times.copy, (("KQV", 0),)),
    ]
    attention = (("DecAttn", 0), ("PfAttn", 0))
    if is_alone:
        operators += [
            LayerOperator("O", ResourceLane.COMPUTE, 0, rows, times.output, attention),
            LayerOperator("FfnNorm", ResourceLane.MEMORY, 0, num_normed, times.norm, (("O", 0),)),
            *_feed_forward(times, rows, (("FfnNorm", 0) if num_normed else ("O", 0),)),
        ]
    else:
        reduction = times.gather * 2 + times.norm
        operators += [
            LayerOperator("Attn.AG", ResourceLane.NETWORK, 0, num_gathered, times.gather, attention),
            LayerOperator("O", ResourceLane.COMPUTE, 0, rows, times.output, (("Attn.AG", 0), *attention)),
            LayerOperator("O.AG", ResourceLane.NETWORK, 0, num_gathered, times.gather + times.norm, (("O", 0),)),
            LayerOperator("O.AR", ResourceLane.NETWORK, num_gathered, rows, reduction, (("O", 0),)),
            *_feed_forward(times, rows, (("O.AG", 0), ("O.AR", 0))),
            LayerOperator("UGD.AR", ResourceLane.NETWORK, 0, rows, reduction, ((last_product, 0),)),
        ]
    return [operator for operator in operators if operator.num_rows > 0]


def _feed_forward(times: LayerTimes, num_rows: int, after: tuple[tuple[str, int], ...]) -> list[LayerOperator]:
    """One operator, or two that may have different parts of the device."""
    if times.down is None:
        return [LayerOperator("UGD", ResourceLane.COMPUTE, 0, num_rows, times.feed_forward, after)]
    return [
        LayerOperator("UG", ResourceLane.COMPUTE, 0, num_rows, times.feed_forward, after),
        LayerOperator("D", ResourceLane.COMPUTE, 0, num_rows, times.down, (("UG", 0),)),
    ]


def _attention(times: LayerTimes, batch: DenseBatch, is_spread: bool) -> list[LayerOperator]:
    """Of decodes, bound by memory, and of prefill; none of a phase without rows."""
    rows, num_decodes = batch.num_rows, round(batch.num_decodes)
    decode, prefill = times.decode_attention, times.prefill_attention
    if not is_spread:
        return [
            LayerOperator("DecAttn", ResourceLane.MEMORY, 0, num_decodes, decode, (("KQV", 0),)),
            LayerOperator("PfAttn", ResourceLane.COMPUTE, num_decodes, rows, prefill, (("KQV", 0),)),
        ]
    share = num_decodes / rows
    decodes, prefills = Line(decode.fixed_s, decode.row_s * share), Line(prefill.fixed_s, prefill.row_s * (1 - share))
    return [
        LayerOperator("DecAttn", ResourceLane.MEMORY, 0, rows if share > 0 else 0, decodes, (("KQV", 0),)),
        LayerOperator("PfAttn", ResourceLane.COMPUTE, 0, rows if share < 1 else 0, prefills, (("KQV", 0),)),
    ]


def sequential_s(operators: Sequence[LayerOperator]) -> float:
    """One after another, none in parts: the pipeline of other systems (NanoFlow, figure 4)."""
    return sum(operator.time.seconds(operator.num_rows) for operator in operators)


def split(operators: Sequence[LayerOperator], cuts: Cuts) -> list[NanoOperator]:
    """The parts of all operators, in the order of these and of rows."""
    return [
        NanoOperator(operator.name, operator.lane, first, end, operator.time.seconds(end - first))
        for operator in operators
        for first, end in _ranges(operator, cuts.get(operator.name, ()))
    ]


def edges(operators: Sequence[LayerOperator], parts: Sequence[NanoOperator]) -> list[Edge]:
    """Parts depend where their operators do and their rows intersect (§4.1.2)."""
    after = {operator.name: dict(operator.after) for operator in operators}
    return [
        Edge(parent, child, after[part.operator][other.operator])
        for child, part in enumerate(parts)
        for parent, other in enumerate(parts)
        if other.operator in after[part.operator] and other.first_row < part.end_row and part.first_row < other.end_row
    ]


def _ranges(operator: LayerOperator, cuts: Sequence[int]) -> list[tuple[int, int]]:
    ends = sorted({operator.first_row, operator.end_row, *cuts})
    assert (ends[0], ends[-1]) == (operator.first_row, operator.end_row), f"{operator.name} is cut inside of its rows"
    return list(pairwise(ends))
