"""What each operator of a layer is for: the names under which NanoFlow (OSDI'25, §3.2) counts and overlaps them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from gpu_node.graph.program import ATTENTIONS, PRODUCTS, Operator, OperatorKind


class LayerRole(Enum):
    """Parts of a layer, in their order."""

    FIRST_NORM = auto()
    QUERIES = auto()
    """The products of queries, keys and values, and what is done to these up to attention."""
    ATTENTION = auto()
    OUTPUT = auto()
    """The product behind attention, and its sum with the residual where there is one device."""
    OUTPUT_SUM = auto()
    """Its sum over devices, and with the residual."""
    SECOND_NORM = auto()
    FEED_FORWARD = auto()
    FEED_FORWARD_SUM = auto()
    """Likewise."""


_NORMS = frozenset({OperatorKind.RMS_NORM, OperatorKind.LAYER_NORM})
_MULTIPLIES = PRODUCTS | {OperatorKind.EXPERTS}


def layer_roles(operators: Sequence[Operator]) -> list[LayerRole]:
    """The role of each operator of one layer."""
    roles = []
    role = LayerRole.FIRST_NORM
    for operator in operators:
        role = _next(role, operator.kind)
        roles.append(role)
    return roles


def _next(role: LayerRole, kind: OperatorKind) -> LayerRole:
    if kind in ATTENTIONS:
        return LayerRole.ATTENTION
    match role:
        case LayerRole.FIRST_NORM if kind in _MULTIPLIES:
            return LayerRole.QUERIES
        case LayerRole.ATTENTION if kind is not OperatorKind.POLL:
            return LayerRole.OUTPUT
        case LayerRole.OUTPUT if kind is OperatorKind.ALL_REDUCE:
            return LayerRole.OUTPUT_SUM
        case LayerRole.OUTPUT | LayerRole.OUTPUT_SUM if kind in _NORMS:
            return LayerRole.SECOND_NORM
        case LayerRole.SECOND_NORM if kind in _MULTIPLIES:
            return LayerRole.FEED_FORWARD
        case LayerRole.FEED_FORWARD if kind is OperatorKind.ALL_REDUCE:
            return LayerRole.FEED_FORWARD_SUM
    return role
