"""Requests that will come and go ahead of those that wait, as far as queues tell it.

There are two ways to go ahead. A group that has room takes newcomers where it stands, before the groups behind it,
until it is full, begins, or has been open for long (`open_groups`). And a request due earlier goes before those
due later (`virtual_queues`, and every plan but that of ``fcfs``): of a kind that has to start within P, those that come
until D - P go ahead of a group that is due at D. Of another model that concerns what waits for its turn behind it: a
swap waits until the model before has nothing to do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from services.queue_manager.groups.groups import RequestGroups
from services.queue_manager.learnt.arrivals import Flow
from services.queue_manager.state.group import Group
from services.queue_manager.state.node import Node
from services.queue_manager.state.state import State
from services.queue_manager.waits.arriving_share import arriving_shares
from services.queue_manager.waits.interruptions import num_present
from shared.config.services.corrections import Correction
from shared.config.services.queue import QueueOptions
from shared.estimator.batching import Batching, batching
from shared.estimator.overtaking import Stream, held_share
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import RequestShape


class NewcomerKind(NamedTuple):
    """What comes to a node of one model and kind of promise."""

    model: str
    slo_kind: str
    patience_s: float
    """From its arrival until one has to start."""
    stream: Stream
    """For as long as they can be expected to come."""
    num_present: float
    """That keep the node from other models at a time (`interruptions`); 0.0 of those that wait for their turn."""
    prompts_s: float
    """λ E[c]²: the rate of the variance of what their prompts add to steps. A long one is spread over many steps."""


class Joining(NamedTuple):
    """What comes into a group that has room."""

    model: str
    slo_kind: str
    stream: Stream


class Newcomers:
    """Owns nothing: it combines what is learnt of arrivals with the order of a queue."""

    def __init__(self, state: State, groups: RequestGroups, options: QueueOptions) -> None:
        self._state = state
        self._groups = groups
        corrections = options.corrections
        self._foresees = options.rules.is_by_due and Correction.NEWCOMERS in corrections
        self._foresees_joining = Correction.JOINING in corrections
        self._has_interruptions = Correction.INTERRUPTIONS in corrections

    def kinds(self, node: Node, known: NodeState, groups: Iterable[Group], now: float) -> list[NewcomerKind]:
        """What comes to the node, for the model that it holds and for those of these groups."""
        if not self._foresees:
            return []
        models = dict.fromkeys([node.model, *(group.model for group in groups)])
        return [
            self._kind(node, known, shape, flow, now)
            for model in models
            if model not in known.broken_models
            for shape, flow in self._groups.expected_newcomers(model)
        ]

    def _kind(self, node: Node, known: NodeState, shape: RequestShape, flow: Flow, now: float) -> NewcomerKind:
        work = batching(known, shape)
        coming = self._groups.coming(flow, now)
        per_s = coming.rate_per_s * arriving_shares(self._state, shape).get(node.node, 0.0)
        stream = _stream(work, per_s, coming.lasts_s, coming.error)
        number = 0.0
        if self._has_interruptions:
            number = num_present(known, shape.model, work, coming.patience_s, per_s)
        prompts_s = per_s * work.prompt_rows_s**2
        return NewcomerKind(flow.model, flow.slo_kind, coming.patience_s, stream, number, prompts_s)

    def joining(self, group: Group, work: Batching, begin_s: float, now: float) -> Iterator[Joining]:
        """Requests that will join the group, which begins in so many seconds, at its pace so far."""
        if not self._foresees_joining:
            return
        influx = self._groups.open_groups.joining(group, begin_s, now)
        if influx.lasts_s > 0:
            # how many join until it is full is known
            error = 0.0 if influx.fills_it else 1 / math.sqrt(group.num_joined - 1)
            stream = _stream(work, influx.per_s, influx.lasts_s, error)
            yield Joining(group.model, group.slo_kind, stream)

    def streams(
        self, group: Group, kinds: Iterable[NewcomerKind], joining: Sequence[Joining], now: float
    ) -> list[Stream]:
        """What goes ahead of those that wait in a group: more urgent kinds, and what joins groups before it.

        What counts as more urgent is not counted once more where it joins.
        """
        due_s = group.start_by_s - now
        urgent = [kind for kind in kinds if kind.slo_kind != group.slo_kind and kind.patience_s < due_s]
        num_others = math.fsum(kind.num_present for kind in urgent if kind.model != group.model)
        found = []
        for kind in urgent:
            stream = kind.stream if kind.model == group.model else _visiting(kind, num_others)
            found.append(replace(stream, horizon_s=min(stream.horizon_s, due_s - kind.patience_s)))
        counted = {(kind.model, kind.slo_kind) for kind in urgent}
        return found + [one.stream for one in joining if (one.model, one.slo_kind) not in counted]


def _visiting(kind: NewcomerKind, num_others: float) -> Stream:
    """What comes of another model, of which some keep the node to themselves."""
    if not kind.num_present:
        return kind.stream
    share = held_share(num_others) * kind.num_present / num_others
    return replace(kind.stream, share=max(kind.stream.share, share))


def _stream(work: Batching, per_s: float, horizon_s: float, error: float) -> Stream:
    square_s2 = work.request_s**2 + work.std_request_s**2
    return Stream(per_s * work.request_s, per_s * square_s2, horizon_s, error)
