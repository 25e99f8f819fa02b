"""Programs without some of a layer's operators, as a profile names them; what is left over is timed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from gpu_node.graph.passes.pipeline.layer_roles import LayerRole, program_roles
from gpu_node.graph.program import ATTENTIONS, PRODUCTS, OperatorKind, Program, Rows

KQV, ATTENTION, OUTPUT, FEED_FORWARD = "KQV", "Attn", "O", "UGD"
ROLES = (KQV, ATTENTION, OUTPUT, FEED_FORWARD)

_NAMES: Mapping[LayerRole, str] = {
    LayerRole.FIRST_NORM: KQV,
    LayerRole.QUERIES: KQV,
    LayerRole.ATTENTION: ATTENTION,
    LayerRole.OUTPUT: OUTPUT,
    LayerRole.SECOND_NORM: FEED_FORWARD,
    LayerRole.UP: FEED_FORWARD,
    LayerRole.DOWN: FEED_FORWARD,
}
"""On one device; norms are timed with the products behind them."""
_WORKS = PRODUCTS | ATTENTIONS | {OperatorKind.EXPERTS}


def roles(program: Program) -> list[str | None]:
    """Of each operator; None outside of layers."""
    return [None if found is None else _NAMES[found[0]] for found in program_roles(program)]


def without(left_out: Collection[str]) -> Callable[[Program], Program]:
    """A pass that leaves roles out. What it gives is for timing alone: buffers are read that were not written."""

    def change(program: Program) -> Program:
        kept = [
            operator
            for operator, role in zip(program.operators, roles(program), strict=True)
            if role is None or role not in left_out
        ]
        return replace(program, operators=tuple(kept))

    return change


def num_layers(program: Program) -> dict[str, int]:
    """By role, the layers in which it is there for all rows of a step, not for those alone that draw a token."""
    rows = {buffer.name: buffer.rows for buffer in program.buffers}
    found = {
        (_NAMES[role[0]], role[1])
        for operator, role in zip(program.operators, program_roles(program), strict=True)
        if role is not None and operator.kind in _WORKS and rows[operator.outputs[0]] is Rows.TOKENS
    }
    return dict(Counter(name for name, _ in found))
