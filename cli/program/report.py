"""What `treadle program` tells of a model: its operators by layer, each with its shapes and its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpu_node.graph.cost import Cost, NumberBytes, program_costs, total
from gpu_node.graph.layers import sections, short_weights
from gpu_node.graph.program import ATTENTIONS, KV_WRITERS, Operator, Program, Rows
from gpu_node.graph.step_shape import StepShape

KV_BLOCKS = "KV blocks"


@dataclass(frozen=True, slots=True)
class OperatorRow:
    """One operator."""

    operator: Operator
    reads: tuple[str, ...]
    """Buffers with their shapes."""
    writes: tuple[str, ...]
    """Likewise, and KV blocks."""
    weights: tuple[str, ...]
    sources: tuple[str, ...]
    """What it reads, KV blocks included; for a view, the buffer that it is a part of."""
    targets: tuple[str, ...]
    """What it writes, likewise."""
    cost: Cost


@dataclass(frozen=True, slots=True)
class Block:
    """A layer, or what comes before or after the layers. ``cost`` is that of all the layers it stands for."""

    title: str
    lines: tuple[OperatorRow, ...]
    num_same: int
    cost: Cost


@dataclass(frozen=True, slots=True)
class Report:
    """A program in a step of one size."""

    blocks: tuple[Block, ...]
    costs: tuple[Cost, ...]
    """Of every operator, those of folded layers included."""
    cost: Cost


def report(program: Program, step: StepShape, sizes: NumberBytes) -> Report:
    """Fold a program's layers and lay out its operators."""
    costs = program_costs(program, step, sizes)
    shapes = _shapes(program, step)
    wholes = {buffer.name: buffer.view_of or buffer.name for buffer in program.buffers}
    found = sections(program)
    blocks = []
    for number, section in enumerate(found):
        own = costs[section.first : section.first + len(section.operators)]
        lines = tuple(
            _line(operator, shapes, wholes, cost) for operator, cost in zip(section.operators, own, strict=True)
        )
        title = _title(section.layer, section.num_same, is_first=number == 0)
        # layers fold only if they are the same, so they cost the same
        blocks.append(Block(title, lines, section.num_same, total(own * section.num_same)))
    return Report(tuple(blocks), tuple(costs), total(costs))


def _title(layer: int | None, num_same: int, *, is_first: bool) -> str:
    if layer is None:
        return "before the layers" if is_first else "after the layers"
    match num_same:
        case 1:
            return f"layer {layer}"
        case 2:
            return f"layer {layer} (layer {layer + 1} the same)"
    return f"layer {layer} (layers {layer + 1}–{layer + num_same - 1} the same)"


def _shapes(program: Program, step: StepShape) -> Mapping[str, Sequence[int]]:
    rows = {Rows.TOKENS: step.num_rows, Rows.DRAWS: step.num_draws}
    buffers = {buffer.name: (rows[buffer.rows], buffer.num_columns) for buffer in program.buffers}
    return buffers | {weight.name: weight.shape for weight in program.weights}


def _line(
    operator: Operator, shapes: Mapping[str, Sequence[int]], wholes: Mapping[str, str], cost: Cost
) -> OperatorRow:
    def named(names: Sequence[str], shown: Sequence[str]) -> tuple[str, ...]:
        return tuple(_with_shape(text, shapes.get(name)) for name, text in zip(names, shown, strict=True))

    kv_read = (KV_BLOCKS,) if operator.kind in ATTENTIONS else ()
    kv_written = (KV_BLOCKS,) if operator.kind in KV_WRITERS else ()
    return OperatorRow(
        operator=operator,
        reads=named(operator.inputs, operator.inputs),
        writes=(*named(operator.outputs, operator.outputs), *kv_written),
        weights=named(operator.weights, short_weights(operator)),
        sources=(*dict.fromkeys(wholes.get(name, name) for name in operator.inputs), *kv_read),
        targets=(*dict.fromkeys(wholes[name] for name in operator.outputs), *kv_written),
        cost=cost,
    )


def _with_shape(name: str, shape: Sequence[int] | None) -> str:
    return name if shape is None else f"{name} [{'×'.join(map(str, shape))}]"


def operator_title(operator: Operator) -> str:
    """What an operator is called, with its part of the batch where that is not all of it."""
    return operator.kind if operator.share.is_whole else f"{operator.kind} ({operator.share})"


def short_number(value: float, unit: str = "") -> str:
    """Three digits, a prefix and the unit: 123456 is ``123 k``, or ``123 kB``."""
    for prefix in ("", "k", "M", "G", "T"):
        if abs(value) < 999.5:
            return f"{value:.3g} {prefix}{unit}".rstrip()
        value /= 1000
    return f"{value:.0f} P{unit}"
