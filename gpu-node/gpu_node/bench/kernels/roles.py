"""Which part of a pipeline's layer an operator of a program belongs to, and programs without some parts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import replace

from gpu_node.graph.program import ATTENTIONS, PRODUCTS, Operator, OperatorKind, Program, Rows

KQV, ATTENTION, OUTPUT, FEED_FORWARD = "KQV", "Attn", "O", "UGD"
ROLES = (KQV, ATTENTION, OUTPUT, FEED_FORWARD)

_PRODUCTS = PRODUCTS | {OperatorKind.EXPERTS}
_BEHIND_PRODUCTS = frozenset({OperatorKind.ADD, OperatorKind.ADD_BIAS})
_LAYER_WEIGHT = re.compile(r"layers\.(\d+)\.")


def roles(program: Program) -> list[str | None]:
    """Of each operator; None outside of layers.

    What comes before a layer's attention is KQV: a norm, products, turns, writes. Behind it the first product is O,
    with what is done to its rows; the rest is the feed-forward network, with its norm.
    """
    found: list[str | None] = []
    layer, role, is_projected = None, None, False
    for operator in program.operators:
        own = _own_layer(operator)
        if own != layer and (own is not None or operator.weights):
            layer, role, is_projected = own, None if own is None else KQV, False
        if role is not None and operator.kind in ATTENTIONS:
            role = ATTENTION
        elif role == ATTENTION:
            role = OUTPUT
        elif role == OUTPUT and is_projected and operator.kind not in _BEHIND_PRODUCTS:
            role = FEED_FORWARD
        is_projected = is_projected or (role == OUTPUT and operator.kind in _PRODUCTS)
        found.append(role)
    return found


def _own_layer(operator: Operator) -> int | None:
    """By its blocks or its weights."""
    if operator.layer is not None:
        return operator.layer
    match = _LAYER_WEIGHT.match(operator.weights[0]) if operator.weights else None
    return int(match[1]) if match else None


def without(left_out: Collection[str]) -> Callable[[Program], Program]:
    """A pass that leaves roles out. What it gives is for timing alone: buffers are read that nobody has written."""

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
    counted: Counter[str] = Counter()
    seen: set[tuple[str, int]] = set()
    layer = -1
    for operator, role in zip(program.operators, roles(program), strict=True):
        own = _own_layer(operator)
        layer = layer if own is None else own
        works = operator.kind in _PRODUCTS or operator.kind in ATTENTIONS
        if role is None or not works or rows[operator.outputs[0]] is not Rows.TOKENS or (role, layer) in seen:
            continue
        seen.add((role, layer))
        counted[role] += 1
    return dict(counted)
