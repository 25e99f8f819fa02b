"""A model as data: operators over named buffers. Builders make programs, passes change them, executors run them.

Every buffer has one row for each token of the step's batch, or one for each sequence that draws a token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

TOKEN_IDS = "token_ids"  # noqa: S105 (a token of text, no secret)
"""Buffer that exists before the first operator: the token id of each row."""

POSITIONS = "positions"
"""Buffer that exists before the first operator: the position of each row in its sequence."""


class Rows(StrEnum):
    """What the rows of a buffer stand for."""

    TOKENS = "tokens"
    DRAWS = "draws"


class OperatorClass(StrEnum):
    """The resource that an operator is bound by; operators of different classes can overlap (NanoFlow, OSDI'25)."""

    COMPUTE = "compute"
    MEMORY = "memory"
    NETWORK = "network"


class Kind(StrEnum):
    """What an operator does; `gpu_node.kernels` says each in full.

    What an executor may not pass over in silence is a kind of its own, not an attribute: an executor that does not
    know a kind fails, one that does not know an attribute computes something else.
    """

    EMBEDDING = "embedding"
    RMS_NORM = "rms_norm"
    HEAD_NORM = "head_norm"
    LAYER_NORM = "layer_norm"
    LINEAR = "linear"
    LINEAR_BIAS = "linear_bias"
    ROPE_ANGLES = "rope_angles"
    SCALED_ROPE_ANGLES = "scaled_rope_angles"
    ROPE = "rope"
    WRITE_KV = "write_kv"
    PAGED_ATTENTION = "paged_attention"
    WINDOW_ATTENTION = "window_attention"
    SILU_MUL = "silu_mul"
    RELU = "relu"
    GELU = "gelu"
    ROUTE = "route"
    EXPERTS = "experts"
    ADD = "add"
    SELECT_DRAWS = "select_draws"


@dataclass(frozen=True, slots=True)
class Buffer:
    """Rows of ``num_columns`` numbers."""

    name: str
    num_columns: int
    rows: Rows = Rows.TOKENS


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter by its canonical name; linear weights are [outputs, inputs]."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operator:
    """One operation: reads ``inputs`` and ``weights``, writes ``outputs``."""

    kind: Kind
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[str, ...] = ()
    operator_class: OperatorClass = OperatorClass.MEMORY
    layer: int | None = None
    """Whose KV blocks it reads or writes; None if it touches none."""
    attributes: Mapping[str, int | float] = field(default_factory=dict, hash=False)
    """Numbers that the operation needs beside its tensors, such as ``epsilon`` or ``theta``."""


@dataclass(frozen=True, slots=True)
class Program:
    """A model for one device. ``result`` names the buffer of logits, one row for each draw."""

    operators: tuple[Operator, ...]
    buffers: tuple[Buffer, ...]
    weights: tuple[Weight, ...]
    result: str

    def check(self) -> None:
        """Assert that names are unique and known, and that every buffer is written before it is read."""
        buffers = {buffer.name for buffer in self.buffers}
        weights = {weight.name for weight in self.weights}
        assert len(buffers) == len(self.buffers), "a buffer is declared once"
        assert len(weights) == len(self.weights), "a weight is declared once"
        written = {TOKEN_IDS, POSITIONS}
        used: set[str] = set()
        for operator in self.operators:
            assert written.issuperset(operator.inputs), f"{operator} reads what is not written yet"
            assert buffers.issuperset(operator.outputs), f"{operator} writes an unknown buffer"
            assert weights.issuperset(operator.weights), f"{operator} uses an unknown weight"
            written.update(operator.outputs)
            used.update(operator.weights)
        assert used == weights, "every weight is used"
        assert self.result in written, "the result is written"
