"""A pipeline's parts of each operator, in lanes that overlap (NanoFlow, OSDI'25, §4.1).

Each operator of a layer comes once for each part of its role, in that part's rows, lane and part of the device; what
belongs to no layer stays whole. The program still lists all parts of an operator one behind the other, so what depends
on what follows from the boxes alone. In the lanes, parts come in the order in which the pipeline starts them, as far
as nothing has to come before.

A pipeline counts rows from the first decode to the last prompt; a step has its decodes last (`gpu_node.graph.share`).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from gpu_node.graph.hazards import conflicts
from gpu_node.graph.lanes import Placement, ProgramLane, queues_of
from gpu_node.graph.layers import sections
from gpu_node.graph.passes.draft import Draft
from gpu_node.graph.passes.layer_roles import LayerRole, layer_roles
from gpu_node.graph.program import COLLECTIVES, Operator, OperatorKind, Program, accesses
from gpu_node.graph.share import DECODE, PREFILL, WHOLE, Part, Range, Share, share_of
from shared.config.pipeline_file import SEARCH_AGAIN, PipelineError, PipelineFile, PipelineOperator

_PHASES: Mapping[str, Share] = {"DecAttn": DECODE, "PfAttn": PREFILL}
_AHEAD_OF_ALL, _BEHIND_ALL = -math.inf, math.inf


@dataclass(frozen=True, slots=True)
class _NanoPart:
    """A part of the batch in which an operator comes."""

    share: Share
    placement: Placement
    start_s: float
    """From the first layer's beginning."""


def nano_batches(program: Program, pipeline: PipelineFile) -> Program:
    """The program in the lanes of ``pipeline``. `PipelineError` where it is not about such a program."""
    if program.offloads:
        raise PipelineError("no pipeline runs beside attention on other devices; set pipeline: off")
    assert not program.lanes, "a program has one pipeline"
    draft = Draft(program)
    placements: list[Placement] = []
    starts: list[float] = []
    for operator, is_polled, parts in _operators(program, _Parts(pipeline)):
        for part in parts:
            share = operator.share & part.share
            if not share.is_possible:
                continue
            if operator.kind in COLLECTIVES and part.placement.lane is not ProgramLane.NETWORK:
                raise PipelineError(f"{operator.kind.value} in the lane {part.placement.lane}: {SEARCH_AGAIN}")
            for one in (replace(operator, share=share), _POLL)[: 1 + is_polled]:
                draft.add(one)
                placements.append(part.placement)
                starts.append(part.start_s)
    listed = draft.program()
    hazards = conflicts(accesses(listed.operators, listed.buffers))
    polls = {index for index, operator in enumerate(listed.operators) if operator.kind is OperatorKind.POLL}
    order = [place for index in _order(starts, hazards) if index not in polls for place in (index, index + 1)]
    order = [index for place, index in enumerate(order) if place % 2 == 0 or index in polls]
    queues = queues_of(order, placements, hazards)
    piped = replace(listed, lanes=queues)
    piped.check()
    return piped


_POLL = Operator(OperatorKind.POLL, (), ())


def _operators(program: Program, parts: _Parts) -> Iterator[tuple[Operator, bool, Sequence[_NanoPart]]]:
    """Each operator but polls, whether a poll is behind it, and the parts in which it comes."""
    roles: list[tuple[LayerRole, int] | None] = []
    for section in sections(program):
        if section.layer is None:
            roles += [None] * len(section.operators)
            continue
        for layer in range(section.layer, section.layer + section.num_same):
            roles += [(role, layer) for role in layer_roles(section.operators)]
    num_before = next((index for index, role in enumerate(roles) if role is not None), len(roles))
    for index, (operator, role) in enumerate(zip(program.operators, roles, strict=True)):
        if operator.kind is OperatorKind.POLL:
            continue
        is_polled = program.operators[index + 1 : index + 2] == (_POLL,)
        if role is None:
            start_s = _AHEAD_OF_ALL if index < num_before else _BEHIND_ALL
            lane = ProgramLane.NETWORK if operator.kind in COLLECTIVES else ProgramLane.COMPUTE
            yield operator, is_polled, [_NanoPart(WHOLE, Placement(lane, 1.0), start_s)]
        else:
            yield operator, is_polled, parts.of(*role)


class _Parts:
    """Parts by role and layer."""

    def __init__(self, pipeline: PipelineFile) -> None:
        self._pipeline = pipeline
        self._by_name: dict[str, list[PipelineOperator]] = {}
        for one in pipeline.operators:
            if one.name not in _RUNNABLE:
                raise PipelineError(
                    f"no executor runs {one.name}; the parts of a pipeline are {', '.join(_RUNNABLE)}: {SEARCH_AGAIN}"
                )
            self._by_name.setdefault(one.name, []).append(one)

    def of(self, role: LayerRole, layer: int) -> list[_NanoPart]:
        """The parts of a role in a layer; a norm without any comes with the sum before it or the product behind it."""
        names, lap = _NAMES[role], layer
        for name, lag in _BESIDE.get(role, ()):
            if not self._known(names):
                names, lap = (name,), layer - lag
        found = [part for name in names for part in self._parts(name, lap)]
        if not found:
            raise PipelineError(f"the pipeline has no parts of {' or '.join(_NAMES[role])}; {SEARCH_AGAIN}")
        return found

    def _known(self, names: Sequence[str]) -> bool:
        return any(name in self._by_name for name in names)

    def _parts(self, name: str, lap: int) -> Iterator[_NanoPart]:
        """Those of one name; its first and last reach as far as its phase does in a step."""
        parts = sorted(self._by_name.get(name, ()), key=lambda one: one.rows)
        num_rows = self._pipeline.rows
        is_alone = not self._known([other for other in _PHASES if other != name])
        for number, one in enumerate(parts):
            first = 0 if number == 0 else one.rows[0]
            end = num_rows if number == len(parts) - 1 else one.rows[1]
            rows = Range(Part.ALL, 1 - Fraction(end, num_rows), 1 - Fraction(first, num_rows))
            share = share_of(rows)
            if name in _PHASES and not is_alone:
                share = share & _PHASES[name]
            yield _NanoPart(share, Placement(ProgramLane(one.lane), one.r), one.start_s + lap * self._pipeline.layer_s)


_NAMES: Mapping[LayerRole, tuple[str, ...]] = {
    LayerRole.FIRST_NORM: ("AttnNorm",),
    LayerRole.QUERIES: ("KQV",),
    LayerRole.ATTENTION: tuple(_PHASES),
    LayerRole.OUTPUT: ("O",),
    LayerRole.OUTPUT_SUM: ("O.AR",),
    LayerRole.SECOND_NORM: ("FfnNorm",),
    LayerRole.FEED_FORWARD: ("UGD",),
    LayerRole.FEED_FORWARD_SUM: ("UGD.AR",),
}
_RUNNABLE = tuple(name for names in _NAMES.values() for name in names)
_BESIDE: Mapping[LayerRole, tuple[tuple[str, int], ...]] = {
    LayerRole.FIRST_NORM: (("UGD.AR", 1), ("KQV", 0)),
    LayerRole.SECOND_NORM: (("O.AR", 0), ("UGD", 0)),
}
"""In a group of devices the collective, and how many layers before; else the product that was profiled with it."""


def _order(starts: Sequence[float], hazards: Sequence[Sequence[int]]) -> list[int]:
    """All operators by start, none before one that it has to follow."""
    followers: list[list[int]] = [[] for _ in starts]
    num_open = [len(before) for before in hazards]
    for index, before in enumerate(hazards):
        for other in before:
            followers[other].append(index)
    ready = [(start, index) for index, start in enumerate(starts) if not num_open[index]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, index = heapq.heappop(ready)
        order.append(index)
        for follower in followers[index]:
            num_open[follower] -= 1
            if not num_open[follower]:
                heapq.heappush(ready, (starts[follower], follower))
    return order
