"""A model as data: operators over named buffers. Builders make programs, passes change them, executors run them.

Every buffer has one row for each token of the step's batch, or one for each sequence that draws a token.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from gpu_node.graph.coverage import Box, Coverage, box
from gpu_node.graph.hazards import Access, Place, conflicts
from gpu_node.graph.lanes import LaneQueue, check_queues
from gpu_node.graph.share import LOCAL, REMOTE, WHOLE, Share
from gpu_node.graph.weight import Weight

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


class OperatorKind(StrEnum):
    """What an operator does; `gpu_node.kernels.operations` says each in full.

    What an executor may not pass over in silence is a kind of its own, not an attribute: an executor that does not
    know a kind fails, one that does not know an attribute computes something else.
    """

    EMBEDDING = "embedding"
    SEGMENT_EMBEDDING = "segment_embedding"
    RMS_NORM = "rms_norm"
    HEAD_NORM = "head_norm"
    LAYER_NORM = "layer_norm"
    LINEAR = "linear"
    LINEAR_BIAS = "linear_bias"
    LINEAR_ADD = "linear_add"
    GATED_LINEAR = "gated_linear"
    LORA = "lora"
    ROPE_ANGLES = "rope_angles"
    SCALED_ROPE_ANGLES = "scaled_rope_angles"
    ROPE = "rope"
    WRITE_KV = "write_kv"
    ROPE_WRITE_KV = "rope_write_kv"
    PAGED_ATTENTION = "paged_attention"
    WINDOW_ATTENTION = "window_attention"
    BIDIRECTIONAL_ATTENTION = "bidirectional_attention"
    BIDIRECTIONAL_WINDOW_ATTENTION = "bidirectional_window_attention"
    SILU_MUL = "silu_mul"
    ERF_GELU_MUL = "erf_gelu_mul"
    RELU = "relu"
    GELU = "gelu"
    ERF_GELU = "erf_gelu"
    TANH = "tanh"
    ROUTE = "route"
    EXPERTS = "experts"
    ADD = "add"
    ADD_BIAS = "add_bias"
    SELECT_DRAWS = "select_draws"
    SELECT_FIRST = "select_first"
    MEAN_POOL = "mean_pool"
    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    POLL = "poll"
    SEND = "send"
    GATHER = "gather"
    COPY_OUT = "copy_out"


PRODUCTS = frozenset(
    {OperatorKind.LINEAR, OperatorKind.LINEAR_BIAS, OperatorKind.LINEAR_ADD, OperatorKind.GATED_LINEAR}
)
"""Kinds whose first input is multiplied with their first weight."""

BOTH_SIDES = frozenset({OperatorKind.BIDIRECTIONAL_ATTENTION, OperatorKind.BIDIRECTIONAL_WINDOW_ATTENTION})
"""Attentions in which a row sees rows behind it, too."""

ATTENTIONS = BOTH_SIDES | {OperatorKind.PAGED_ATTENTION, OperatorKind.WINDOW_ATTENTION}
"""Kinds that read a layer's KV blocks."""

SELECTIONS = frozenset({OperatorKind.SELECT_DRAWS, OperatorKind.SELECT_FIRST})
"""Kinds that copy one row of each sequence that draws."""

OF_WHOLE_TEXTS = BOTH_SIDES | {OperatorKind.SEGMENT_EMBEDDING, OperatorKind.SELECT_FIRST, OperatorKind.MEAN_POOL}
"""Kinds of encoders: they need all rows of a sequence in one step, of which the last one draws."""

KV_WRITERS = frozenset({OperatorKind.WRITE_KV, OperatorKind.ROPE_WRITE_KV})
"""Kinds that write a layer's KV blocks."""

COLLECTIVES = frozenset({OperatorKind.ALL_REDUCE, OperatorKind.ALL_GATHER})
"""Kinds that all devices of a group do together, in one order."""

ELSEWHERE = frozenset({OperatorKind.SEND, OperatorKind.GATHER})
"""Kinds that speak with other devices: what is sent first is gathered first."""

_IN_ORDER: Mapping[OperatorKind, str] = {OperatorKind.SEND: "<sent>", OperatorKind.GATHER: "<gathered>"}
"""Places that each of a kind writes whole, so that none of them passes another."""
_OF_A_LAYER = ATTENTIONS | KV_WRITERS | ELSEWHERE | {OperatorKind.COPY_OUT}

_CLASSES: Mapping[OperatorKind, OperatorClass] = {
    **dict.fromkeys(PRODUCTS | {OperatorKind.EXPERTS}, OperatorClass.COMPUTE),
    **dict.fromkeys(
        (OperatorKind.ALL_REDUCE, OperatorKind.ALL_GATHER, OperatorKind.SEND, OperatorKind.GATHER),
        OperatorClass.NETWORK,
    ),
}
"""Kinds that are not here are bound by memory."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Rows of ``num_columns`` numbers: memory of its own, or some columns of another buffer."""

    name: str
    num_columns: int
    rows: Rows = Rows.TOKENS
    view_of: str | None = None
    """The buffer that it is a part of, which is no view itself."""
    first_column: int = 0
    """Where it begins there."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operation: reads ``inputs`` and ``weights``, writes ``outputs``, in the rows of its share of the batch."""

    kind: OperatorKind
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[str, ...] = ()
    layer: int | None = None
    """The layer whose KV blocks it reads or writes; None if it touches none."""
    attributes: Mapping[str, int | float] = field(default_factory=dict, hash=False)
    """Numbers that the operation needs beside its tensors, such as ``epsilon`` or ``theta``."""
    share: Share = WHOLE

    @property
    def operator_class(self) -> OperatorClass:
        """The resource that its kind is bound by, as a rule."""
        return _CLASSES.get(self.kind, OperatorClass.MEMORY)


def keys_and_values(writer: Operator) -> tuple[str, ...]:
    """The buffers that one of `KV_WRITERS` writes to blocks: keys, then values."""
    return writer.inputs if writer.kind is OperatorKind.WRITE_KV else writer.inputs[1:3]


@dataclass(frozen=True, slots=True)
class Program:
    """A model for one device. ``result`` names the buffer of logits, one row for each draw; of hidden states,
    where the model embeds; of what an encoder makes of a text's rows."""

    operators: tuple[Operator, ...]
    buffers: tuple[Buffer, ...]
    weights: tuple[Weight, ...]
    result: str
    lanes: tuple[LaneQueue, ...] = ()
    """Other orders in which the operators may run; none: the one in which they stand."""

    @property
    def num_result_columns(self) -> int:
        """Numbers of a row of the result."""
        return next(buffer.num_columns for buffer in self.buffers if buffer.name == self.result)

    @property
    def offloads(self) -> bool:
        """Whether remote sequences are attended to elsewhere."""
        return any(operator.kind is OperatorKind.SEND for operator in self.operators)

    @property
    def copies_out(self) -> bool:
        """Whether copies of full blocks to the host are operators of it."""
        return any(operator.kind is OperatorKind.COPY_OUT for operator in self.operators)

    def check(self) -> None:
        """Assert that the program can be run.

        Names are unique, known and used; views and pieces lie inside of what they are cut from; every column of every
        share of the batch is written before it is read, KV blocks included; what is gathered was sent first, and where
        anything is sent, blocks of remote sequences are left alone. Whatever order its lanes permit, each operator
        reads what it reads in the order in which they stand.
        """
        self._check_names()
        self._check_views()
        for weight in self.weights:
            weight.check()
        self._check_order()

    def _check_names(self) -> None:
        buffers = {buffer.name for buffer in self.buffers}
        weights = {weight.name for weight in self.weights}
        assert len(buffers) == len(self.buffers), "a buffer is declared once"
        assert len(weights) == len(self.weights), "a weight is declared once"
        assert not buffers & {TOKEN_IDS, POSITIONS}, "the step's own buffers are not declared"
        known = buffers | {TOKEN_IDS, POSITIONS}
        used: set[str] = set()
        for operator in self.operators:
            assert known.issuperset(operator.inputs), f"{operator} reads an unknown buffer"
            assert buffers.issuperset(operator.outputs), f"{operator} writes an unknown buffer"
            assert weights.issuperset(operator.weights), f"{operator} uses an unknown weight"
            assert operator.share.is_possible, f"{operator} covers no part of a batch"
            used.update(operator.weights)
        assert used == weights, "every weight is used"

    def _check_views(self) -> None:
        buffers = {buffer.name: buffer for buffer in self.buffers}
        for buffer in self.buffers:
            assert buffer.num_columns > 0, f"{buffer.name} has columns"
            if buffer.view_of is None:
                assert buffer.first_column == 0, f"{buffer.name} is no view and begins at its beginning"
                continue
            assert buffer.view_of in buffers, f"{buffer.name} is a view of an unknown buffer"
            whole = buffers[buffer.view_of]
            assert whole.view_of is None, f"{buffer.name} is a view of a view"
            assert whole.rows is buffer.rows, f"{buffer.name} has other rows than what it is a view of"
            end = buffer.first_column + buffer.num_columns
            assert 0 <= buffer.first_column < end <= whole.num_columns, f"{buffer.name} lies outside of {whole.name}"

    def _check_order(self) -> None:
        offloads = self.offloads
        written: dict[Place, Coverage] = {}
        sent: deque[tuple[int | None, Share]] = deque()
        all_accesses = accesses(self.operators, self.buffers)
        for operator, own in zip(self.operators, all_accesses, strict=True):
            if operator.kind in _OF_A_LAYER:
                residence = REMOTE if operator.kind in ELSEWHERE else LOCAL
                assert residence.contains(operator.share) or not offloads, f"{operator} is about {residence} rows"
            if operator.kind is OperatorKind.SEND:
                sent.append((operator.layer, operator.share))
            elif operator.kind is OperatorKind.GATHER:
                assert sent, f"{operator} gathers what was not sent"
                assert sent.popleft() == (operator.layer, operator.share), f"{operator} gathers what was not sent first"
            for place, wanted, is_write in own:
                if not is_write:
                    assert place in written, f"{operator} reads what is not written yet"
                    assert written[place].covers(wanted), f"{operator} reads what is not written yet"
            for place, given, is_write in own:
                if is_write:
                    written.setdefault(place, Coverage()).add(given)
        whole, all_of_it = _boxed({one.name: one for one in self.buffers}, self.result, WHOLE)
        assert whole in written, "the result is written"
        assert written[whole].covers(all_of_it), "the result is written"
        if self.lanes:
            self._check_lanes(conflicts(all_accesses))

    def _check_lanes(self, hazards: Sequence[Sequence[int]]) -> None:
        check_queues(self.lanes, len(self.operators), hazards)
        kinds = [(queue.lane, self.operators[turn.operator].kind) for queue in self.lanes for turn in queue.turns]
        collective = {lane for lane, kind in kinds if kind in COLLECTIVES}
        assert len(collective) <= 1, "all devices run collectives in the same order, so these are in one lane"
        elsewhere = {lane for lane, kind in kinds if kind in ELSEWHERE}
        assert len(elsewhere) <= 1, "one thread at a time speaks with other devices, so what does so is in one lane"


def accesses(operators: Sequence[Operator], buffers: Sequence[Buffer]) -> list[list[Access]]:
    """What each operator reads and writes; the step's own buffers left out, which none writes."""
    known = {buffer.name: buffer for buffer in buffers}
    found = []
    for operator in operators:
        share = operator.share
        own = [Access(*_boxed(known, name, share), False) for name in operator.inputs if name in known]
        own += [Access(*_boxed(known, name, share), True) for name in operator.outputs]
        if operator.kind in _OF_A_LAYER:
            assert operator.layer is not None, f"{operator} has a layer"
            is_write = operator.kind in KV_WRITERS or operator.kind is OperatorKind.SEND
            own.append(Access((operator.layer, operator.kind in ELSEWHERE), box(0, 1, share), is_write))
        if operator.kind in _IN_ORDER:
            own.append(Access(_IN_ORDER[operator.kind], box(0, 1, WHOLE), True))
        found.append(own)
    return found


def _boxed(buffers: Mapping[str, Buffer], name: str, share: Share) -> tuple[str, Box]:
    buffer = buffers[name]
    return buffer.view_of or name, box(buffer.first_column, buffer.num_columns, share)
