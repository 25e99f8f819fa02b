"""An executor around another that changes nothing: what looks at steps adds its own `submit`."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_node.engine.border.executor import Executor
from gpu_node.engine.border.model import LoadedModel
from shared.config.engines.engine import ModelSpec


class PassingExecutor:
    """Everything of `Executor` but `submit`, passed on; a subclass overrides what it does otherwise."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    @property
    def device(self) -> str:
        """The inner executor's."""
        return self._executor.device

    @property
    def tiers(self) -> dict[str, str]:
        """The inner executor's."""
        return self._executor.tiers

    def load_model(self, spec: ModelSpec, instead_of: str | None = None) -> LoadedModel:
        """Load into the inner executor."""
        return self._executor.load_model(spec, instead_of)

    def unload_model(self, name: str) -> None:
        """Take it off the device there."""
        self._executor.unload_model(name)

    def read_blocks(self, model: str, blocks: Sequence[int], *, swapped_out: bool) -> tuple[memoryview, float]:
        """Read them there."""
        return self._executor.read_blocks(model, blocks, swapped_out=swapped_out)

    def write_blocks(self, model: str, blocks: Sequence[int], content: memoryview) -> float:
        """Write them there."""
        return self._executor.write_blocks(model, blocks, content)
