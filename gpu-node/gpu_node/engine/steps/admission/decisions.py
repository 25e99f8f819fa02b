"""What a scheduler asks when memory is short: which requests go, how, which come back, and which begin."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.measures.kv_costs import KvCosts
from gpu_node.engine.memory.block_manager import BlockManager
from gpu_node.engine.steps.admission.admission import KvAdmission
from gpu_node.engine.steps.admission.admission_forms import kv_admission
from gpu_node.engine.steps.admission.preemption import PreemptionPolicy, preemption_policy
from gpu_node.engine.steps.admission.set_choice import SetChoice
from gpu_node.engine.steps.batch.order import RequestOrder, request_order
from shared.config.engines.engine import EngineOptions


@dataclass(frozen=True, slots=True)
class Decisions:
    """All of one model's."""

    order: RequestOrder
    preemption: PreemptionPolicy
    admission: KvAdmission
    choice: SetChoice


def decisions(model: LoadedModel, blocks: BlockManager, options: EngineOptions, costs: KvCosts) -> Decisions:
    """Those that the configuration names."""
    order = request_order(options, costs)
    return Decisions(
        order=order,
        preemption=preemption_policy(options, costs, order),
        admission=kv_admission(model, blocks, options, costs),
        choice=SetChoice(order),
    )
