"""What changes from step to step, as arrays that the device reads and writes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gpu_node.kernels.cpu.draws import NO_DRAWS, CpuDraws
from gpu_node.kernels.cpu.library.layout import Int32s
from gpu_node.kernels.cpu.library.step_input import StepInput
from gpu_node.kernels.cpu.remotes import NO_REMOTES, CpuRemotes
from gpu_node.models.tensors.arrays import Float32s


def _no_moves() -> Int32s:
    return np.empty((0, 2), dtype=np.int32)


def _no_adapters() -> Int32s:
    return np.empty(0, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class CpuStep:
    """One step. Inputs are copied when it is submitted; outputs are written until its event has happened."""

    starts: Int32s
    """[sequences]: tokens before the rows of each sequence."""
    num_rows: Int32s
    """[sequences]"""
    num_blocks: Int32s
    """[sequences]"""
    block_tables: Int32s
    """Those of all sequences, one behind the other; of remote ones, blocks of their receivers."""
    token_ids: Int32s
    """[rows]: ids, or the marks of cells (`cell_mark`)."""
    draw_rows: Int32s
    """[draw rows]: the rows that logits are made of."""
    copies: Int32s
    """[copies, 2]: source and destination blocks."""
    logits: Float32s | None
    """Out, [draw rows, vocabulary]; None where they are not asked for."""
    draws: CpuDraws = NO_DRAWS
    """What is drawn from the logits; what comes out lies there too."""
    swaps_out: Int32s = field(default_factory=_no_moves)
    """[swaps, 2]: block of the device and block of the host. Made before the copies."""
    swaps_in: Int32s = field(default_factory=_no_moves)
    """[swaps, 2]: block of the device and block of the host. Made after the copies."""
    copies_out: Int32s = field(default_factory=_no_moves)
    """[copies, 2]: block of the device, which this step does not write, and block of the host. Made with the swaps out,
    or by the operators of the program's lanes that do it."""
    adapters: Int32s = field(default_factory=_no_adapters)
    """[sequences]: number of the adapter of each, or -1; empty where none has one."""
    remotes: CpuRemotes = NO_REMOTES
    """The last of the sequences, which lie on other devices, and blocks that go there or come back, behind all other
    moves; what became of them lies there too."""
    in_lanes: bool = False
    """Whether it goes through the program's lanes, which has some."""
    moves_beside: bool = False
    """Whether copies and swaps of a layer may be made beside operators that come before those which touch it."""

    def as_input(self) -> StepInput:
        """Addresses of all of it, for as long as this object lives."""
        draws, remotes = self.draws, self.remotes
        return StepInput(
            len(self.starts),
            *(array.ctypes.data for array in (self.starts, self.num_rows, self.num_blocks, self.block_tables)),
            self.token_ids.ctypes.data,
            self.adapters.ctypes.data if len(self.adapters) else None,
            len(remotes.parts),
            remotes.inputs,
            remotes.moves.ctypes.data,
            remotes.lost.ctypes.data,
            len(self.draw_rows),
            self.draw_rows.ctypes.data,
            len(draws.tokens),
            draws.draws,
            draws.biases,
            draws.prior_tokens.ctypes.data,
            draws.masks,
            draws.late_masks.shape[1],
            draws.late_masks.ctypes.data,
            draws.late_masks_given.ctypes.data,
            draws.first_cell,
            len(self.copies),
            self.copies.ctypes.data,
            len(self.swaps_out),
            self.swaps_out.ctypes.data,
            len(self.swaps_in),
            self.swaps_in.ctypes.data,
            len(self.copies_out),
            self.copies_out.ctypes.data,
            *(array.ctypes.data for array in (draws.tokens, draws.logprobs, draws.top_tokens, draws.top_logprobs)),
            None if self.logits is None else self.logits.ctypes.data,
            self.in_lanes,
            self.moves_beside,
        )
