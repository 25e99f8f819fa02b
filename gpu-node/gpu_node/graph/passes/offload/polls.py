"""Polls behind operators (Weaver, ATC'25, §4.1)."""

from __future__ import annotations

from gpu_node.graph.passes.draft import Draft
from gpu_node.graph.program import Operator, OperatorKind, Program


def insert_polls(program: Program) -> Program:
    """A poll behind each operator, so that whatever waits there for the device waits for one operator at most.

    A poll that finds nothing waiting changes nothing. A program that has polls already stays as it is.
    """
    draft = Draft(program)
    for index, operator in enumerate(program.operators):
        draft.add(operator)
        is_polled = program.operators[index + 1 : index + 2] == (_POLL,)
        if operator != _POLL and not is_polled:
            draft.add(_POLL)
    return draft.program()


_POLL = Operator(OperatorKind.POLL, (), ())
