"""What each operator of a layer is for: the names under which NanoFlow (OSDI'25, §3.2) counts and overlaps them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from gpu_node.graph.layers import sections
from gpu_node.graph.program import ATTENTIONS, COLLECTIVES, PRODUCTS, Operator, OperatorKind, Program


class LayerRole(Enum):
    """Parts of a layer, in their order."""

    FIRST_NORM = auto()
    QUERIES = auto()
    """The products of queries, keys and values, and what is done to these up to attention."""
    ATTENTION = auto()
    ATTENTION_GATHER = auto()
    """Of the heads of all devices, where the product behind it is cut by its outputs."""
    OUTPUT = auto()
    """The product behind attention, and its sum with the residual where there is one device."""
    OUTPUT_SUM = auto()
    """Its sum over devices, or its columns of all of them, and the sum with the residual."""
    SECOND_NORM = auto()
    UP = auto()
    """The feed-forward network up to what its last product reads; all of it where experts are one operator."""
    DOWN = auto()
    DOWN_SUM = auto()
    """Its sum over devices, and with the residual."""
    COPY_OUT = auto()
    """Of full blocks to the host, anywhere in the layer."""
    SEND = auto()
    """Of what remote rows attend with, ahead of attention."""
    GATHER = auto()
    """Of what comes of them, ahead of the product behind attention."""


_NORMS = frozenset({OperatorKind.RMS_NORM, OperatorKind.LAYER_NORM})
_BESIDE = {
    OperatorKind.COPY_OUT: LayerRole.COPY_OUT,
    OperatorKind.SEND: LayerRole.SEND,
    OperatorKind.GATHER: LayerRole.GATHER,
}
"""What has its role by its kind, and changes none of those around it."""
_MULTIPLIES = PRODUCTS | {OperatorKind.EXPERTS}
_ACTIVATES = frozenset({OperatorKind.SILU_MUL, OperatorKind.RELU, OperatorKind.GELU, OperatorKind.GATED_LINEAR})


def program_roles(program: Program) -> list[tuple[LayerRole, int] | None]:
    """Of each operator its role and layer; None outside of layers."""
    roles: list[tuple[LayerRole, int] | None] = []
    for section in sections(program):
        if section.layer is None:
            roles += [None] * len(section.operators)
            continue
        for layer in range(section.layer, section.layer + section.num_same):
            roles += [(role, layer) for role in layer_roles(section.operators)]
    return roles


def layer_roles(operators: Sequence[Operator]) -> list[LayerRole]:
    """The role of each operator of one layer."""
    roles = []
    role, is_activated = LayerRole.FIRST_NORM, False
    for operator in operators:
        if operator.kind in _BESIDE:
            roles.append(_BESIDE[operator.kind])
            continue
        role = _next(role, operator.kind, is_activated=is_activated)
        is_activated = is_activated or operator.kind in _ACTIVATES
        roles.append(role)
    return roles


def _next(role: LayerRole, kind: OperatorKind, *, is_activated: bool) -> LayerRole:
    if kind in ATTENTIONS:
        return LayerRole.ATTENTION
    match role:
        case LayerRole.FIRST_NORM if kind in _MULTIPLIES:
            return LayerRole.QUERIES
        case LayerRole.ATTENTION if kind is OperatorKind.ALL_GATHER:
            return LayerRole.ATTENTION_GATHER
        case LayerRole.ATTENTION if kind is not OperatorKind.POLL:
            return LayerRole.OUTPUT
        case LayerRole.ATTENTION_GATHER | LayerRole.OUTPUT_SUM if kind in _MULTIPLIES:
            return LayerRole.OUTPUT
        case LayerRole.OUTPUT if kind in COLLECTIVES:
            return LayerRole.OUTPUT_SUM
        case LayerRole.OUTPUT | LayerRole.OUTPUT_SUM if kind in _NORMS:
            return LayerRole.SECOND_NORM
        case LayerRole.SECOND_NORM if kind in _MULTIPLIES:
            return LayerRole.UP
        case LayerRole.UP if is_activated and kind in _MULTIPLIES and kind is not OperatorKind.GATED_LINEAR:
            return LayerRole.DOWN
        case LayerRole.UP | LayerRole.DOWN if kind is OperatorKind.ALL_REDUCE:
            return LayerRole.DOWN_SUM
    return role
