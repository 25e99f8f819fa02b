"""Attention of sequences whose keys and values lie elsewhere, done where they lie (Weaver, ATC'25, §3 and §4.1).

Of each layer, the query, key and value rows of remote sequences go to the receiver, which writes keys and values into
its own blocks and attends; meanwhile the local rows are written and attended to here; then the receiver's rows are put
beside them. All else is done for local and remote rows together, as before.

``runs_ahead`` is ours: while remote rows are away, local rows go on through the rest of the layer up to the next keys
and values. So a task has a whole layer's time instead of an attention's, and each weight is read twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from gpu_node.graph.passes.draft import Draft
from gpu_node.graph.passes.offload.polls import insert_polls
from gpu_node.graph.program import ATTENTIONS, KV_WRITERS, Operator, OperatorKind, Program, keys_and_values
from gpu_node.graph.share import LOCAL, REMOTE, WHOLE, Share


def offload(program: Program, *, runs_ahead: bool = False) -> Program:
    """Send what remote sequences attend with, gather what comes of it. A program that does so stays as it is."""
    if program.offloads:
        return program
    unpolled = [one for one in program.operators if one.kind is not OperatorKind.POLL]
    division = _Division(program)
    stages = _stages(unpolled)
    for number, stage in enumerate(stages):
        is_split = runs_ahead and number > 0 and bool(stage.attentions)
        for share in (LOCAL, REMOTE) if is_split else (WHOLE,):
            if share != LOCAL and number > 0:
                division.gather(stages[number - 1].attentions)
            division.add(stage.others, share)
        division.send(stage.attentions)
        division.attend(stage.attentions)
    offloaded = division.draft.program()
    return insert_polls(offloaded) if len(unpolled) < len(program.operators) else offloaded


@dataclass(frozen=True, slots=True)
class _Stage:
    """What leads to attention, and that attention: in one piece or in several. None at the end of the program."""

    others: Sequence[Operator]
    attentions: Sequence[Operator]


def _stages(operators: Sequence[Operator]) -> list[_Stage]:
    stages = []
    others: list[Operator] = []
    for layer, group in groupby(operators, _attended_layer):
        if layer is None:
            others = list(group)
        else:
            stages.append(_Stage(others, list(group)))
            others = []
    return [*stages, _Stage(others, ())]


def _attended_layer(operator: Operator) -> int | None:
    return operator.layer if operator.kind in ATTENTIONS else None


class _Division:
    """Operators by residence."""

    def __init__(self, program: Program) -> None:
        self.draft = Draft(program)
        self._keys_and_values = {one.layer: keys_and_values(one) for one in program.operators if one.kind in KV_WRITERS}
        self._held: list[Operator] = []  # local writes, which can wait until remote rows are sent

    def add(self, operators: Sequence[Operator], share: Share) -> None:
        """What ``operators`` do for ``share``; keys and values of remote rows are not written here."""
        for operator in operators:
            if operator.kind in KV_WRITERS:
                self._write(operator, share)
            else:
                self._add(operator, operator.share & share)

    def send(self, attentions: Sequence[Operator]) -> None:
        """The remote rows of these; then what has waited for that."""
        for operator in attentions:
            inputs = (*operator.inputs, *self._keys_and_values[operator.layer])
            self._add(replace(operator, kind=OperatorKind.SEND, inputs=inputs, outputs=()), operator.share & REMOTE)
        self._release()

    def attend(self, attentions: Sequence[Operator]) -> None:
        """The local rows."""
        for operator in attentions:
            self._add(operator, operator.share & LOCAL)

    def gather(self, attentions: Sequence[Operator]) -> None:
        """What comes of the remote rows."""
        for operator in attentions:
            gather = Operator(OperatorKind.GATHER, (), operator.outputs, layer=operator.layer)
            self._add(gather, operator.share & REMOTE)

    def _write(self, operator: Operator, share: Share) -> None:
        """The local rows; the remote ones are turned, where that is the same operator."""
        remote = operator.share & share & REMOTE
        if operator.kind is OperatorKind.ROPE_WRITE_KV:
            *_, angles = operator.inputs
            for name in operator.outputs:
                self._add(Operator(OperatorKind.ROPE, (name, angles), (name,)), remote)
        local = operator.share & share & LOCAL
        if local.is_possible:
            self._held.append(replace(operator, share=local))

    def _add(self, operator: Operator, share: Share) -> None:
        if not share.is_possible:
            return
        if any((one.share & share).is_possible for one in self._held):
            self._release()
        self.draft.add(replace(operator, share=share))

    def _release(self) -> None:
        for operator in self._held:
            self.draft.add(operator)
        self._held.clear()
