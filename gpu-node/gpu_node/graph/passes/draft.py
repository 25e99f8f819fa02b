"""A program in the making: what a pass writes into, and what makes a whole program of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from gpu_node.graph.program import Buffer, Operator, Program
from gpu_node.graph.weight import Weight

Pass = Callable[[Program], Program]


def changed(program: Program, passes: Iterable[Pass]) -> Program:
    """What comes of one pass after another."""
    for change in passes:
        program = change(program)
    return program


class Draft:
    """A program that grows by operators; buffers and weights of the old one are known from the start.

    Nothing is removed by hand: the finished program declares what its operators use, and no more.
    """

    def __init__(self, program: Program) -> None:
        self._result = program.result
        self._operators: list[Operator] = []
        self._buffers = {buffer.name: buffer for buffer in program.buffers}
        self._weights = {weight.name: weight for weight in program.weights}

    def add(self, operator: Operator) -> None:
        """Append an operator."""
        self._operators.append(operator)

    def buffer(self, name: str) -> Buffer:
        """A declared buffer."""
        return self._buffers[name]

    def weight(self, name: str) -> Weight:
        """A declared weight."""
        return self._weights[name]

    def declare_buffer(self, buffer: Buffer) -> str:
        """Declare a buffer or declare it anew; the same again changes nothing. Its name."""
        self._buffers[buffer.name] = buffer
        return buffer.name

    def declare_weight(self, weight: Weight) -> str:
        """Declare a weight; its name."""
        assert self._weights.setdefault(weight.name, weight) == weight, f"{weight.name} changes its shape"
        return weight.name

    def columns(self, name: str, first: int, num_columns: int) -> str:
        """A view of some columns of a buffer, declared if it is not yet; its name. All of it is the buffer itself."""
        buffer = self._buffers[name]
        if num_columns == buffer.num_columns:
            return name
        whole, start = buffer.view_of or name, buffer.first_column + first
        view = dataclasses.replace(
            buffer,
            name=f"{whole}[{start}:{start + num_columns}]",
            num_columns=num_columns,
            view_of=whole,
            first_column=start,
        )
        return self.declare_buffer(view)

    def program(self) -> Program:
        """The finished program, checked."""
        used = {name for operator in self._operators for name in (*operator.inputs, *operator.outputs)}
        used |= {buffer.view_of for buffer in self._buffers.values() if buffer.name in used and buffer.view_of}
        weights = {name for operator in self._operators for name in operator.weights}
        program = Program(
            tuple(self._operators),
            tuple(buffer for name, buffer in self._buffers.items() if name in used),
            tuple(weight for name, weight in self._weights.items() if name in weights),
            self._result,
        )
        program.check()
        return program
