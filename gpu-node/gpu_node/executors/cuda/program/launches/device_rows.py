"""Which operators of a program a launch on all rows can do: the device finds which of them are local, or remote."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_node.graph.program import ATTENTIONS, COLLECTIVES, KV_WRITERS, Operator, OperatorKind, Program, Rows
from gpu_node.graph.share import LOCAL, REMOTE

_DIVIDED = ATTENTIONS | KV_WRITERS | {OperatorKind.SEND, OperatorKind.GATHER}
"""Operators that a launch can do for local rows, or for remote ones, as the device finds them."""


@dataclass(frozen=True, slots=True)
class DeviceRows:
    """Of one program."""

    of_tokens: frozenset[str]
    """Buffers that have a row a token; the others have one a draw."""
    splits: bool
    """The program sends, and the device can find the rows of all that is done before draws; draws are not divided."""

    @classmethod
    def of(cls, program: Program) -> DeviceRows:
        """As its operators are now."""
        of_tokens = frozenset(buffer.name for buffer in program.buffers if buffer.rows is Rows.TOKENS)
        operators = program.operators
        first = next((place for place, one in enumerate(operators) if not of_tokens.issuperset(one.outputs)), None)
        behind = [] if first is None else operators[first:]
        is_found = all(map(_finds_its_rows, operators)) and all(operator.share.is_whole for operator in behind)
        return cls(of_tokens, program.offloads and is_found)

    def is_of_any(self, operator: Operator) -> bool:
        """Whether it is on all rows of a step, or on those that the device finds: not on those that draw."""
        is_found = operator.share.is_whole or self.splits
        return self.of_tokens.issuperset(operator.outputs) and is_found and operator.kind not in COLLECTIVES


def _finds_its_rows(operator: Operator) -> bool:
    """Whether a launch on all rows can be told by the device which of them it is for."""
    if operator.kind is OperatorKind.ROPE and operator.share == REMOTE:  # of a writer that turns all rows then
        return True
    return operator.share.is_whole or (operator.kind in _DIVIDED and operator.share in (LOCAL, REMOTE))
