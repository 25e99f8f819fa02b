"""Rows that draw no token leave the program as soon as nothing reads them: behind the attention of the last layer.

Keys and values are written for every row, but what the last layer makes of them serves its own row only, and of those
the head takes the rows that draw. So whatever is read in draw rows alone is computed in draw rows alone: the choice of
rows moves from the end of the program to where the first of it begins. A chunk of a prompt that draws nothing costs
nothing there. No number of a draw row changes. So it is with an encoder's first rows, where these are all that is read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from gpu_node.graph.coverage import Box, Coverage, box
from gpu_node.graph.passes.draft import Draft
from gpu_node.graph.program import PRODUCTS, SELECTIONS, Buffer, Operator, OperatorKind, Program, Rows
from gpu_node.graph.share import WHOLE

_BY_ROW = PRODUCTS | {
    OperatorKind.LORA,
    OperatorKind.RMS_NORM,
    OperatorKind.HEAD_NORM,
    OperatorKind.LAYER_NORM,
    OperatorKind.SILU_MUL,
    OperatorKind.ERF_GELU_MUL,
    OperatorKind.RELU,
    OperatorKind.GELU,
    OperatorKind.ERF_GELU,
    OperatorKind.TANH,
    OperatorKind.ROUTE,
    OperatorKind.EXPERTS,
    OperatorKind.ADD,
    OperatorKind.ADD_BIAS,
    OperatorKind.ALL_REDUCE,
    OperatorKind.ALL_GATHER,
}
"""Kinds that make a row of the same row of each input, wherever it stands in the batch."""


def early_draws(program: Program) -> Program:
    """Compute in draw rows what is read in draw rows only. A program that does so already stays as it is."""
    flow = _Flow(program)
    moved = _moved_selections(flow, program.result)
    mixed: set[str] = set()
    while True:
        early = _early_operators(flow, moved, program.result, mixed)
        places, others = _selections(flow, early | moved.keys())
        if not others:
            break
        mixed |= others
    if not early:
        return program
    tail = _Tail(program, flow, {selection.inputs[0]: selection.outputs[0] for selection in moved.values()})
    (kind,) = {selection.kind for selection in moved.values()}
    for index, operator in enumerate(program.operators):
        for name in places.get(index, ()):
            tail.draft.add(Operator(kind, (name,), (tail.of_draws(name),)))
        if index in early:
            tail.add(operator)
        elif index not in moved:
            tail.draft.add(operator)
    return tail.draft.program()


class _Flow:
    """Which operators read and write the rows of tokens. Views count as the buffers that they are parts of."""

    def __init__(self, program: Program) -> None:
        self.operators = program.operators
        self.buffers = {buffer.name: buffer for buffer in program.buffers}

    def wholes(self, names: Sequence[str]) -> list[str]:
        """The buffers with a row for each token that ``names`` are, or are parts of; the step's own left out."""
        found = (self.buffers[name] for name in names if name in self.buffers)
        return [buffer.view_of or buffer.name for buffer in found if buffer.rows is Rows.TOKENS]

    def uses(self, name: str, operators: Sequence[Operator]) -> bool:
        """Whether any of ``operators`` reads or writes columns of the buffer ``name``."""
        used = (self.buffers.get(other) for one in operators for other in (*one.inputs, *one.outputs))
        return any(name in (buffer.name, buffer.view_of) for buffer in used if buffer)

    def columns(self, name: str) -> Box:
        """Where a buffer lies in the one that it is a part of."""
        return box(self.buffers[name].first_column, self.buffers[name].num_columns, WHOLE)

    def overwrites(self, name: str, operator: Operator) -> bool:
        """Whether ``operator``, which writes ``name``, writes a whole buffer in all its rows."""
        return self.buffers[name].view_of is None and operator.share.is_whole


def _moved_selections(flow: _Flow, result: str) -> Mapping[int, Operator]:
    """Choices of draw rows, by index, that end the use of what they choose from: two names of one buffer in time.

    No first rows that are the result themselves: its numbers may be wider than those that products read.
    """
    moved = {}
    for index, operator in enumerate(flow.operators):
        if operator.kind not in SELECTIONS or not operator.share.is_whole:
            continue
        (source,), (target,) = operator.inputs, operator.outputs
        are_whole = flow.buffers[source].view_of is None and flow.buffers[target].view_of is None
        are_apart = not flow.uses(source, flow.operators[index + 1 :]) and not flow.uses(target, flow.operators[:index])
        is_result = operator.kind is OperatorKind.SELECT_FIRST and target == result
        if are_whole and are_apart and not is_result:
            moved[index] = operator
    return moved


def _early_operators(flow: _Flow, moved: Collection[int], result: str, mixed: Collection[str]) -> set[int]:
    """Operators, by index, of whose output later ones read draw rows only: found from the end to the beginning.

    ``mixed``: buffers that are written in all rows, whatever reads them.
    """
    wanted = dict.fromkeys(flow.wholes((result,)), Rows.TOKENS)  # rows of each buffer that are read later
    early = set()
    for index in reversed(range(len(flow.operators))):
        operator = flow.operators[index]
        outputs = flow.wholes(operator.outputs)
        can_be_early = operator.kind in _BY_ROW and operator.share.is_whole and bool(outputs)
        is_early = can_be_early and all(wanted.get(one) is Rows.DRAWS and one not in mixed for one in outputs)
        if is_early:
            early.add(index)
        for name in operator.outputs:
            for whole in flow.wholes((name,)):
                if flow.overwrites(name, operator):
                    wanted.pop(whole, None)
                elif not is_early and whole in wanted:  # rows are chosen behind it, from all columns
                    wanted[whole] = Rows.TOKENS
        for whole in flow.wholes(operator.inputs):
            if is_early or index in moved:
                wanted.setdefault(whole, Rows.DRAWS)
            else:
                wanted[whole] = Rows.TOKENS
    return early


def _selections(flow: _Flow, early: Collection[int]) -> tuple[Mapping[int, list[str]], set[str]]:
    """By the index of an operator, the buffers of which draw rows are chosen before it.

    All at once before the first early operator, so that no other stands between those that can be joined; what is
    written later is chosen from just behind that. The second value: buffers of which an early operator reads columns
    that were written for all rows beside columns that were not; nothing could be chosen for it.
    """
    places: dict[int, list[str]] = {}
    mixed = set()
    first = min(early, default=0)
    written_at: dict[str, int] = {}
    chosen: dict[str, Coverage] = {}  # columns whose last values there are in draw rows
    for index, operator in enumerate(flow.operators):
        if index not in early:
            for whole in flow.wholes(operator.outputs):
                written_at[whole] = index
                chosen.pop(whole, None)
            continue
        for name in operator.inputs:
            for whole in flow.wholes((name,)):
                if whole not in chosen:
                    places.setdefault(max(written_at[whole] + 1, first), []).append(whole)
                    chosen[whole] = Coverage()
                    chosen[whole].add(flow.columns(whole))
                if not chosen[whole].covers(flow.columns(name)):
                    mixed.add(whole)
        for name in operator.outputs:
            for whole in flow.wholes((name,)):
                chosen.setdefault(whole, Coverage()).add(flow.columns(name))
    return places, mixed


class _Tail:
    """Operators over buffers of draw rows in the place of those over all rows."""

    def __init__(self, program: Program, flow: _Flow, names: Mapping[str, str]) -> None:
        """``names``: how the draw rows of a buffer are called already."""
        self.draft = Draft(program)
        self._buffers = flow.buffers
        self._names = names

    def add(self, operator: Operator) -> None:
        """Append ``operator``, in draw rows."""
        inputs, outputs = (tuple(map(self.of_draws, names)) for names in (operator.inputs, operator.outputs))
        self.draft.add(replace(operator, inputs=inputs, outputs=outputs))

    def of_draws(self, name: str) -> str:
        """The draw rows of a buffer of tokens, declared if they are not yet; their name."""
        buffer = self._buffers[name]
        whole = buffer.view_of or name
        of_draws = self._names.get(whole, f"{whole}_of_draws")
        if whole not in self._names:
            assert of_draws not in self._buffers, f"{of_draws} is something else already"
            self.draft.declare_buffer(Buffer(of_draws, self._buffers[whole].num_columns, Rows.DRAWS))
        return self.draft.columns(of_draws, buffer.first_column, buffer.num_columns)
