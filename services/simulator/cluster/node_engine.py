"""The engine as a simulated node drives it, and the live bookkeeping behind that border."""

from __future__ import annotations

from typing import Protocol

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.engine import WAIT_S, Engine
from gpu_node.engine.measures.counts import Counts
from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.process.commands.commands import CommandedEngine
from gpu_node.engine.requests.chunk import OutputChunk
from shared.config.engines.engine import ModelSpec


class NodeEngine(CommandedEngine, Protocol):
    """What runs on a node. Between `start` and `finish` it computes, and nothing else may be asked but `interrupt`."""

    @property
    def has_work(self) -> bool:
        """Whether `start` has anything to compute."""
        ...

    @property
    def num_preemptions(self) -> int:
        """Of the loaded models, since each was loaded."""
        ...

    @property
    def counts(self) -> Counts:
        """Since the engine began."""
        ...

    def load_model(self, spec: ModelSpec) -> LoadedModel:
        """Make a model the current one; takes no time of its own, the node waits for it."""
        ...

    def start(self, now: float) -> float:
        """Compute from ``now`` on; the time at which there is something to tell."""
        ...

    def interrupt(self, now: float) -> float:
        """The engine is asked for something: the end of the step that runs at ``now``, where it stops for that."""
        ...

    def finish(self) -> list[OutputChunk]:
        """It is the time that was told last: new tokens and ends."""
        ...

    def catch_up(self, now: float) -> EngineStats | None:
        """The state after the last step that was over by ``now``; None where it has been told already."""
        ...

    def flush(self, now: float) -> list[OutputChunk]:
        """All tokens that were drawn by ``now`` and have not been told."""
        ...

    def num_untold_tokens(self, now: float) -> dict[str, int]:
        """By request: how many tokens of its answer were drawn by ``now`` and have not been told."""
        ...

    def redraw(self) -> None:
        """Answers are as long as `AnswerTokens` says now; what is computed until the time told last is drawn already.

        An answer that is longer by then ends with its next token.
        """
        ...

    def check(self) -> None:
        """Assert that the books balance."""
        ...


class SteppedEngine(Engine):
    """The live bookkeeping, step by step: what faster engines are compared with."""

    _chunks: list[OutputChunk]
    _end_s: float

    def start(self, now: float) -> float:
        """Plan a step; it is over when its predicted time is. Where all wait for the store, it is looked at again."""
        num_before = self._steps.num_collected
        self._chunks = self.step(now)
        has_computed = self._steps.num_collected > num_before
        self._end_s = now + (self._steps.step_s if has_computed else WAIT_S)
        return self._end_s

    def interrupt(self, now: float) -> float:
        """A step is not cut."""
        del now
        return self._end_s

    def finish(self) -> list[OutputChunk]:
        """What the step brought."""
        return self._chunks

    def catch_up(self, now: float) -> None:
        """Every step is told."""

    def flush(self, now: float) -> list[OutputChunk]:
        """Likewise."""
        del now
        return []

    def num_untold_tokens(self, now: float) -> dict[str, int]:
        """Likewise."""
        del now
        return {}

    def redraw(self) -> None:
        """The executor asks at each token whether it is the last."""
