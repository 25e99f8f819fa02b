"""Where buffers of a program lie on the CPU device, and in which type.

One thing is decided here, since it is the device's own business: a buffer that only products read is rounded to
bfloat16 by its writer, not by each reader. No number changes: with ``round_early=False`` each reader rounds.
"""

from __future__ import annotations

from gpu_node.executors.cpu.rounding import READS_BFLOAT16, WRITES_BFLOAT16
from gpu_node.executors.cpu.unsupported import UnsupportedOperatorError
from gpu_node.graph.program import SELECTIONS, OperatorKind, Program, Rows
from gpu_node.kernels.cpu import CpuProgram, CpuRows, Type, View


class BufferPlaces:
    """Places that buffers are given in ``target``, each when it is first asked for."""

    def __init__(self, program: Program, target: CpuProgram, *, round_early: bool) -> None:
        self._target = target
        self._buffers = {buffer.name: buffer for buffer in program.buffers}
        self._selected = {
            self._whole(operator.outputs[0]): self._whole(operator.inputs[0])
            for operator in program.operators
            if operator.kind in SELECTIONS
        }
        self._wholes: dict[str, View] = {}
        self._narrow = self._narrow_buffers(program, round_early=round_early)

    def view(self, name: str) -> View:
        """Where a buffer lies: in a place of its own, or in that of the buffer that it is a view of."""
        buffer = self._buffers[name]
        whole = self._whole(name)
        if whole not in self._wholes:
            kind = Type.BFLOAT16 if whole in self._narrow else Type.FLOAT32
            self._wholes[whole] = self._target.buffer(self.rows(whole), kind, self._buffers[whole].num_columns)
        return View(self._wholes[whole].buffer, buffer.first_column, buffer.num_columns)

    def rows(self, name: str) -> CpuRows:
        """What a buffer has a row for."""
        return CpuRows.TOKENS if self._buffers[name].rows is Rows.TOKENS else CpuRows.DRAWS

    def is_narrow(self, name: str) -> bool:
        """Whether it is bfloat16."""
        return self._whole(name) in self._narrow

    def _whole(self, name: str) -> str:
        return self._buffers[name].view_of or name

    def _origin(self, name: str) -> str:
        """The whole buffer, or the one that its rows were selected from."""
        whole = self._whole(name)
        return self._selected.get(whole, whole)

    def _narrow_buffers(self, program: Program, *, round_early: bool) -> frozenset[str]:
        """Buffers, views left out, that are bfloat16. Rows that are selected have the type of those beside them."""
        gated = {self._origin(one.outputs[0]) for one in program.operators if one.kind is OperatorKind.GATED_LINEAR}
        wide = {self._origin(program.result)}
        for operator in program.operators:
            if operator.kind in SELECTIONS:  # they copy either type
                continue
            read_wide = operator.inputs[operator.kind in READS_BFLOAT16 :]
            written_wide = () if operator.kind in WRITES_BFLOAT16 else operator.outputs
            wide.update(self._origin(name) for name in (*read_wide, *written_wide) if name in self._buffers)
        if gated & wide:
            raise UnsupportedOperatorError(OperatorKind.GATED_LINEAR, " whose output is read by others than products")
        wholes = {name for name in self._buffers if self._whole(name) == name}
        if round_early:
            return frozenset(name for name in wholes if self._origin(name) not in wide)
        return frozenset(name for name in wholes if self._origin(name) in gated)
