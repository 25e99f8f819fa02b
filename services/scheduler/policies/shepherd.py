"""SHEPHERD (NSDI'23) as QLM compares with it (SoCC'24 §8): fixed batches, deterministic worst-case execution times.

Our reading. A request group is a batch, of a size that its maker fixed; a device runs one batch after another, each to
its end. As a request's length is not known before it ends, its ``max_tokens`` stand for it. Batches go by deadline,
each to the device that would complete it first. SHEPHERD keeps the models of a device resident, so loading one has no
time in its plans; we let it break ties only: of equal completions, the device whose queue ends with the model.
"""

from __future__ import annotations

from math import ceil

import msgspec

from services.scheduler.solving.methods.turns import running_groups, turns
from services.scheduler.solving.problem.instance import Instance, Queues
from shared.estimator.batching import batching
from shared.messages.nodes.nodes import NodeState
from shared.messages.nodes.placement import GroupLoad, PlacementProblem


def place(problem: PlacementProblem, instance: Instance) -> Queues:
    """Earliest deadline first, onto the earliest worst-case completion."""
    loads = {load.group: load for load in problem.groups}
    queues = running_groups(instance)
    ends = [node.model for node in instance.nodes]
    clock_s = [
        sum(worst_case_s(node, loads[instance.groups[group].name]) for group in queue)
        for node, queue in zip(problem.nodes, queues, strict=True)
    ]
    for number in turns(instance, key=lambda number: instance.groups[number].due_s):
        group = instance.groups[number]
        done_s = {node: clock_s[node] + worst_case_s(problem.nodes[node], loads[group.name]) for node in group.places}
        node = min(done_s, key=lambda node: (done_s[node], ends[node] != group.model))
        queues[node].append(number)
        clock_s[node] = done_s[node]
        ends[node] = group.model
    return queues


def worst_case_s(node: NodeState, load: GroupLoad) -> float:
    """Of a batch, or of as many as the group needs: its prompts, then as many steps as a member may have tokens."""
    worst = msgspec.structs.replace(load, mean_output_tokens=load.max_tokens, std_output_tokens=0.0)
    work = batching(node, worst)
    together = min(float(load.num_requests), work.batch)
    batch_s = work.first_token_at(together) + (worst.mean_output_tokens - 1) * work.pace_at(together)
    return ceil(load.num_requests / work.batch) * batch_s
