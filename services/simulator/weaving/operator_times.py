"""How long each operator of a program takes in a step of decodes, by its own bytes and operations.

Bytes and operations of an operator (`gpu_node.graph.cost`) grow evenly with sequences and with tokens of context, so
five steps tell them for all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from gpu_node.graph.cost import Cost, NumberBytes, program_costs
from gpu_node.graph.program import OperatorKind, Program
from gpu_node.graph.step_shape import SequencePart, StepShape

BFLOAT16 = NumberBytes(2.0, 2.0, 2.0)


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """Sequences of a step, one row each, by where their keys and values are; tokens with the row itself."""

    num_local: int
    local_tokens: int
    num_remote: int = 0
    remote_tokens: int = 0

    @property
    def num_rows(self) -> int:
        """Of all sequences."""
        return self.num_local + self.num_remote


@dataclass(frozen=True, slots=True)
class DeviceSpeed:
    """What an operator's time hangs on."""

    bytes_per_s: float
    """Of weights and buffers; all of these as operators reach them, not peaks."""
    kv_bytes_per_s: float
    """Of keys and values."""
    flops_per_s: float
    wire_bytes_per_s: float
    """Sent to other devices."""
    launch_s: float
    """Of each operator, beside its work."""


@dataclass(frozen=True, slots=True)
class _Line:
    """Something of an operator by sequences and tokens."""

    fixed: float
    local: float
    local_token: float
    remote: float
    remote_token: float

    def at(self, step: DecodeStep) -> float:
        return (
            self.fixed
            + self.local * step.num_local
            + self.local_token * step.local_tokens
            + self.remote * step.num_remote
            + self.remote_token * step.remote_tokens
        )


@dataclass(frozen=True, slots=True)
class _Lines:
    num_bytes: _Line
    kv_bytes: _Line
    flops: _Line
    wire_bytes: _Line


class OperatorTimes:
    """Of one program on one kind of device."""

    def __init__(self, program: Program, speed: DeviceSpeed) -> None:
        self.operators = program.operators
        self._speed = speed
        lines = _lines(program)
        self._kinds = list(dict.fromkeys(lines))  # those of all layers are the same
        index = {one: number for number, one in enumerate(self._kinds)}
        self._kind_of = [index[one] for one in lines]
        self._places: dict[OperatorKind, list[int]] = {}
        for place, operator in enumerate(program.operators):
            self._places.setdefault(operator.kind, []).append(place)

    def seconds(self, step: DecodeStep) -> list[float]:
        """Of each operator, in the program's order: a launch, and the longest of memory, compute and network time."""
        speed = self._speed
        times = [
            speed.launch_s
            + max(
                kind.num_bytes.at(step) / speed.bytes_per_s + kind.kv_bytes.at(step) / speed.kv_bytes_per_s,
                kind.flops.at(step) / speed.flops_per_s,
                kind.wire_bytes.at(step) / speed.wire_bytes_per_s,
            )
            for kind in self._kinds
        ]
        return [times[kind] for kind in self._kind_of]

    def total_s(self, step: DecodeStep) -> float:
        """Of all operators, one after another."""
        return sum(self.seconds(step))

    def ends_s(self, step: DecodeStep) -> list[float]:
        """When each ends, from the beginning of the first; they run one after another."""
        return list(accumulate(self.seconds(step)))

    def one_s(self, kind: OperatorKind, step: DecodeStep) -> float:
        """Of the first operator of a kind."""
        return self.seconds(step)[self.places(kind)[0]]

    def places(self, kind: OperatorKind) -> list[int]:
        """Of the operators of a kind, in order."""
        return self._places.get(kind, [])


def _lines(program: Program) -> list[_Lines]:
    base, longer_local, longer_remote, more_local, more_remote = (
        program_costs(program, shape, BFLOAT16)
        for shape in (_shape([1], [1]), _shape([2], [1]), _shape([1], [2]), _shape([1, 1], [1]), _shape([1], [1, 1]))
    )
    steps = zip(base, longer_local, longer_remote, more_local, more_remote, strict=True)
    return [_operator_lines(*costs) for costs in steps]


def _shape(local: list[int], remote: list[int]) -> StepShape:
    """Sequences of so many tokens, of which the last is computed."""
    parts = tuple(SequencePart(num_tokens - 1, 1) for num_tokens in (*local, *remote))
    return StepShape(parts, num_draws=len(parts), num_remote=len(remote))


def _operator_lines(*costs: Cost) -> _Lines:
    return _Lines(
        _line(*(one.weight_bytes + one.buffer_bytes for one in costs)),
        _line(*(one.kv_bytes for one in costs)),
        _line(*(one.flops for one in costs)),
        _line(*(one.wire_bytes for one in costs)),
    )


def _line(base: float, longer_local: float, longer_remote: float, more_local: float, more_remote: float) -> _Line:
    local_token, remote_token = longer_local - base, longer_remote - base
    local, remote = more_local - base - local_token, more_remote - base - remote_token
    return _Line(base - local - local_token - remote - remote_token, local, local_token, remote, remote_token)
