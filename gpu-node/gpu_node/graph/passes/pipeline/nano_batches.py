"""A pipeline's parts of each operator, in lanes that overlap (NanoFlow, OSDI'25, §4.1).

Each operator of a layer comes once for each part of its role, in that part's rows, lane and part of the device; what
belongs to no layer stays whole. The program still lists all parts of an operator one behind the other, so what depends
on what follows from the boxes alone. In the lanes, parts come in the order in which the pipeline starts them, as far
as nothing has to come before.

Of a program that offloads, what a part's remote rows attend with is sent when the pipeline starts the part's attention,
and what comes of it is gathered when that is to end, both in the lane of the network; meanwhile its local rows attend,
and other parts go on.

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
from gpu_node.graph.passes.draft import Draft
from gpu_node.graph.passes.pipeline.gather_output import gather_output
from gpu_node.graph.passes.pipeline.layer_roles import LayerRole, program_roles
from gpu_node.graph.program import COLLECTIVES, Operator, OperatorKind, Program, accesses
from gpu_node.graph.share import DECODE, PREFILL, WHOLE, Part, Range, Share, share_of
from shared.config.pipelines.pipeline_file import SEARCH_AGAIN, PipelineError, PipelineFile, PipelineOperator

_PHASES: Mapping[str, Share] = {"DecAttn": DECODE, "PfAttn": PREFILL}
_COPY_PART = 0.1
"""Where a pipeline says nothing of copies to the host, they have so much of the device, beside the last products."""
_LINK = Placement(ProgramLane.NETWORK, 0.1)
"""Of what is sent to other devices and gathered, of which no pipeline says anything: rows are moved, nothing more."""
_FEED_FORWARD = ("UG", "D", "UGD")
_AHEAD_OF_ALL, _BEHIND_ALL = -math.inf, math.inf


@dataclass(frozen=True, slots=True)
class _NanoPart:
    """A part of the batch in which an operator comes."""

    rows: Range
    placement: Placement
    start_s: float
    """From the first layer's beginning, as is the next."""
    end_s: float
    phase: Share = WHOLE

    def of(self, operator: Operator) -> Operator:
        """What the operator does here; of copies, which are of no row of the step, as large a part of them."""
        if operator.kind is not OperatorKind.COPY_OUT:
            return replace(operator, share=operator.share & share_of(self.rows) & self.phase)
        count = math.lcm(self.rows.start.denominator, self.rows.end.denominator)
        part = {"first": int(self.rows.start * count), "end": int(self.rows.end * count), "count": count}
        return replace(operator, attributes=part)


def nano_batches(program: Program, pipeline: PipelineFile) -> Program:
    """The program in the lanes of ``pipeline``. `PipelineError` where it is not about such a program."""
    assert not program.lanes, "a program has one pipeline"
    if gathered := [one.rows[1] for one in pipeline.operators if one.name == "O.AG"]:
        rows = Range(Part.ALL, 1 - Fraction(max(gathered), pipeline.rows), Fraction(1))
        program = gather_output(program, rows)
    draft = Draft(program)
    placements: list[Placement] = []
    starts: list[float] = []
    for operator, is_polled, parts in _operators(program, _Parts(pipeline)):
        for part in parts:
            own = part.of(operator)
            if not own.share.is_possible:
                continue
            if operator.kind in COLLECTIVES and part.placement.lane is not ProgramLane.NETWORK:
                raise PipelineError(f"{operator.kind.value} in the lane {part.placement.lane}: {SEARCH_AGAIN}")
            for one in (own, _POLL)[: 1 + is_polled]:
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
    roles = program_roles(program)
    layers = [role[1] for role in roles if role is not None]
    assert layers == sorted(layers), "parts run ahead of others in lanes, and no rows of a program before that"
    num_before = next((index for index, role in enumerate(roles) if role is not None), len(roles))
    for index, (operator, role) in enumerate(zip(program.operators, roles, strict=True)):
        if operator.kind is OperatorKind.POLL:
            continue
        is_polled = program.operators[index + 1 : index + 2] == (_POLL,)
        if role is None:
            start_s = _AHEAD_OF_ALL if index < num_before else _BEHIND_ALL
            lane = ProgramLane.NETWORK if operator.kind in COLLECTIVES else ProgramLane.COMPUTE
            yield operator, is_polled, [_NanoPart(Range(), Placement(lane, 1.0), start_s, start_s)]
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
        """The parts of a role in a layer, under the first of its names that the pipeline knows."""
        if role in (LayerRole.SEND, LayerRole.GATHER):
            # both in one order, since the first that is sent is the first that comes back
            parts = sorted(self.of(LayerRole.ATTENTION, layer), key=lambda one: one.start_s)
            ends = (one.start_s if role is LayerRole.SEND else one.end_s for one in parts)
            return [replace(one, placement=_LINK, start_s=start_s) for one, start_s in zip(parts, ends, strict=True)]
        for names, lag in _NAMES[role]:
            if known := [name for name in names if name in self._by_name]:
                return list(self._parts(known, layer - lag))
        starts = [one.start_s for name in _FEED_FORWARD for one in self._by_name.get(name, ())]
        if role is LayerRole.COPY_OUT and starts:
            start_s = min(starts) + layer * self._pipeline.layer_s
            return [_NanoPart(Range(), Placement(ProgramLane.COPY, _COPY_PART), start_s, start_s)]
        wanted = " or ".join(name for names, _ in _NAMES[role] for name in names)
        raise PipelineError(f"the pipeline has no parts of {wanted}; {SEARCH_AGAIN}")

    def _parts(self, names: Sequence[str], lap: int) -> Iterator[_NanoPart]:
        """Of phases each by itself; else all that share the batch. The first and last reach as far as that does."""
        if len(names) > 1 and _PHASES.keys() >= set(names):
            for name in names:
                yield from (replace(part, phase=_PHASES[name]) for part in self._parts([name], lap))
            return
        parts = sorted((one for name in names for one in self._by_name[name]), key=lambda one: one.rows)
        num_rows = self._pipeline.rows
        for number, one in enumerate(parts):
            first = 0 if number == 0 else one.rows[0]
            end = num_rows if number == len(parts) - 1 else one.rows[1]
            rows = Range(Part.ALL, 1 - Fraction(end, num_rows), 1 - Fraction(first, num_rows))
            since_s = lap * self._pipeline.layer_s
            yield _NanoPart(rows, Placement(ProgramLane(one.lane), one.r), one.start_s + since_s, one.end_s + since_s)


_NAMES: Mapping[LayerRole, tuple[tuple[tuple[str, ...], int], ...]] = {
    LayerRole.FIRST_NORM: ((("AttnNorm",), 0), (("UGD.AR",), 1), (("KQV",), 0)),
    LayerRole.QUERIES: ((("KQV",), 0),),
    LayerRole.ATTENTION: ((tuple(_PHASES), 0),),
    LayerRole.ATTENTION_GATHER: ((("Attn.AG",), 0),),
    LayerRole.OUTPUT: ((("O",), 0),),
    LayerRole.OUTPUT_SUM: ((("O.AG", "O.AR"), 0),),
    LayerRole.SECOND_NORM: ((("FfnNorm",), 0), (("O.AG", "O.AR"), 0), (("UG",), 0), (("UGD",), 0)),
    LayerRole.UP: ((("UG",), 0), (("UGD",), 0)),
    LayerRole.DOWN: ((("D",), 0), (("UGD",), 0)),
    LayerRole.DOWN_SUM: ((("UGD.AR",), 0),),
    LayerRole.COPY_OUT: ((("Copy",), 0),),
}
"""Under which names a role's parts are, which together make up the batch, and so many layers before. A norm without
parts of its own comes with the collective before it, or with the product that was profiled with it."""
_RUNNABLE = tuple(dict.fromkeys(name for choices in _NAMES.values() for names, _ in choices for name in names))


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
