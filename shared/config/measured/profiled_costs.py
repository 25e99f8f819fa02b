"""What steps of a node's models were found to cost on its like, asked when a model comes: it may be measured since."""

from __future__ import annotations

from pathlib import Path

import structlog

from shared.config.measured.profiles import ProfileError, profiled_cost, read_profiles
from shared.config.model_specs import ModelSpecs
from shared.config.nodes.nodes import NodeSpec
from shared.messages.nodes.step_cost import StepCost

log = structlog.get_logger()


class ProfiledCosts:
    """Of one node. The file is small, and read for each model that comes."""

    def __init__(self, path: Path, node: NodeSpec, device: str, specs: ModelSpecs) -> None:
        """``device``: the node's kind, as it calls itself. `ProfileError` where the file is something else by now."""
        read_profiles(path)
        self._path = path
        self._node = node
        self._device = device
        self._specs = specs

    def get(self, model: str, /) -> StepCost | None:
        """Of a model whose name is known; None where it has not been measured, or the file is damaged."""
        try:
            profiles = read_profiles(self._path)
        except ProfileError as error:
            log.warning("costs of steps are learnt anew", model=model, reason=str(error))
            return None
        return profiled_cost(profiles, self._specs.told(model), self._node, self._device)
