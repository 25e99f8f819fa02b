"""Where a search begins: places to cut the batch, what is gathered, where decodes are, which part is behind which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.pipeline.operators.layer import LayerLayout, LayerOperator, edges, split
from services.pipeline.operators.setting import Setting
from services.pipeline.schedules.elastic import Candidate, ElasticLayer
from services.pipeline.schedules.greedy import Task, as_schedule, play
from services.pipeline.schedules.schedule import Schedule
from services.pipeline.search.structure import sequential_schedule
from shared.pipelines.lanes import UNDISTURBED, Interference, ResourceLane

STAGGERS = (0.1, 0.2, 0.3, 0.45)
"""Of a layer, by which the second half of a batch may be behind the first."""
_SHARES = {ResourceLane.COMPUTE: 0.9, ResourceLane.MEMORY: 0.4, ResourceLane.NETWORK: 0.2, ResourceLane.COPY: 0.1}
"""Parts of the device with which the search begins."""


@dataclass(frozen=True, slots=True)
class SearchStart:
    """A structure from which parts of the device are chosen."""

    layout: LayerLayout
    layer: ElasticLayer
    candidate: Candidate
    schedule: Schedule
    """Without interference."""


def beginnings(setting: Setting, parts_of: Mapping[str, int], num_cuts: int) -> list[SearchStart]:
    """All of them; ``parts_of`` says which operators come in more than two parts."""
    num_rows, granule = setting.batch.num_rows, setting.granule_rows
    middle = num_rows // 2 // granule
    found = []
    places = [granule * (middle + number - num_cuts // 2) for number in range(num_cuts)]
    behind_decodes = round(setting.batch.num_decodes / granule) * granule
    if not setting.may_spread and 0 < behind_decodes < num_rows and behind_decodes not in places:
        places.append(behind_decodes)
    for cut in places:
        for layout in _layouts(setting, cut):
            layer = ElasticLayer(setting.operators(layout), setting.interference)
            cuts = {
                one.name: _places(one, cut, num_rows, granule, parts_of.get(one.name, 2)) for one in layer.operators
            }
            schedules = [staggered_schedule(layer.operators, cuts, cut, shift) for shift in STAGGERS]
            found += [
                SearchStart(layout, layer, candidate(cuts, schedule, setting.interference), schedule)
                for schedule in (greedy_schedule(layer.operators, cuts), *schedules)
                if schedule is not None
            ]
    return found


def _layouts(setting: Setting, cut: int) -> list[LayerLayout]:
    """Of a group: none, the first part or all of the batch gathered. Decodes first, or spread where there are any."""
    gathered = (0, cut, setting.batch.num_rows) if setting.num_devices > 1 else (0,)
    is_mixed = 0 < round(setting.batch.num_decodes) < setting.batch.num_rows
    spreads = (False, True) if is_mixed and setting.may_spread else (False,)
    return [LayerLayout(num, is_spread) for num in gathered for is_spread in spreads]


def candidate(cuts: Mapping[str, tuple[int, ...]], schedule: Schedule, interference: Interference) -> Candidate:
    """From a schedule without interference."""
    keys = tuple(slot.start_s / schedule.period_s for slot in schedule.slots)
    wanted = tuple(max(1, round(_SHARES[slot.part.lane] * interference.num_shares)) for slot in schedule.slots)
    return Candidate(dict(cuts), keys, wanted)


def greedy_schedule(operators: Sequence[LayerOperator], cuts: Mapping[str, tuple[int, ...]]) -> Schedule:
    """Without interference: each lane takes what is ready."""
    parts = split(operators, cuts)
    depend = edges(operators, parts)
    tasks = [Task(part.lane, part.best_s, 0.0) for part in parts]
    return as_schedule(parts, tasks, depend, play(tasks, depend)) or sequential_schedule(parts)


def staggered_schedule(
    operators: Sequence[LayerOperator], cuts: Mapping[str, tuple[int, ...]], middle_row: int, shift: float
) -> Schedule | None:
    """Without interference: the second half of the batch is ``shift`` of a layer behind the first.

    So one half can be in its attention while the other is in its feed-forward network.
    """
    parts = split(operators, cuts)
    starts = [0.0] * len(parts)
    for edge in sorted(edges(operators, parts), key=lambda edge: edge.child):
        if not edge.lag:
            starts[edge.child] = max(starts[edge.child], starts[edge.parent] + parts[edge.parent].best_s)
    chain_s = max(start + part.best_s for start, part in zip(starts, parts, strict=True))
    keys = tuple(
        start / chain_s + (shift if part.first_row >= middle_row else 0.0)
        for start, part in zip(starts, parts, strict=True)
    )
    layer, alone = ElasticLayer(operators, UNDISTURBED), Candidate(dict(cuts), keys, (1,) * len(parts))
    outcome = layer.play(alone)
    return None if outcome is None else layer.schedule(alone, outcome)


def _places(operator: LayerOperator, cut: int, num_rows: int, granule: int, num_parts: int) -> tuple[int, ...]:
    """Rows at which an operator is cut: where the batch is, and in its halves for more than two parts."""
    halves = [(0, cut), (cut, num_rows)]
    places = {cut}
    for number in range(num_parts - 2):
        low, high = halves[number % 2]
        places.add(low + (high - low) // 2 // granule * granule)
        halves[number % 2] = (low, low + (high - low) // 2)
    granules = {operator.first_row + round((place - operator.first_row) / granule) * granule for place in places}
    return tuple(sorted(place for place in granules if operator.first_row < place < operator.end_row))
