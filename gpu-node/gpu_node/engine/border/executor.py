"""The border that every executor stands behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import StepPlan, StepResult
from shared.config.engines.engine import ModelSpec


class ModelTooLargeError(ValueError):
    """The model's weights or KV cache do not fit into what the configuration gives; the text names both sizes."""


class BlocksLostError(ModelTooLargeError):
    """And what blocks of the device held is lost; none of them was in use."""


class StepTooLargeError(RuntimeError):
    """The device has no memory for a step: a defect, since what steps need was left for them."""


class BlocksStayError(RuntimeError):
    """Blocks cannot be moved to host memory here; the text says why."""


class PendingStep(Protocol):
    """A step in an executor's queue."""

    def result(self) -> StepResult:
        """Wait until it is computed. Called once; steps are asked in the order in which they were submitted."""
        ...


@dataclass(frozen=True, slots=True)
class ComputedStep:
    """A step that was computed when it was submitted."""

    computed: StepResult

    def result(self) -> StepResult:
        """What it gave."""
        return self.computed


class Executor(Protocol):
    """Owns a device: the weights of its models, the KV memory that they share, and the computation of steps."""

    @property
    def device(self) -> str:
        """What it runs on, in one word for people: ``cpu``, ``predicted``."""
        ...

    @property
    def tiers(self) -> dict[str, str]:
        """Where the weights of models are: ``device`` where they are loaded, ``host`` where they would be soon."""
        ...

    def load_model(self, spec: ModelSpec, instead_of: str | None = None) -> LoadedModel:
        """Make one more model ready to run. Its blocks hold nothing yet, and leases of pages are not looked at.

        ``instead_of`` names a loaded model that is unloaded for it. It may be the same one with other adapters: then
        what its blocks hold stays, no step of it is in flight, and it has no links. Raises `ModelFileError` or
        `ModelTooLargeError`; then nothing has changed, but for `BlocksLostError`. `AdapterFilesError`: without these
        adapters it could be loaded.
        """
        ...

    def unload_model(self, name: str) -> None:
        """Take a loaded model off the device, behind the steps that were submitted; none of its steps may follow.

        Its weights stay in host memory among those of `EngineOptions.host_models`.
        """
        ...

    def read_blocks(self, model: str, blocks: Sequence[int], *, swapped_out: bool) -> tuple[memoryview, float]:
        """A copy of the content of blocks, one behind the other, and the seconds that the move took.

        ``swapped_out``: they are the host's. Behind the steps that were submitted. Raises `BlocksStayError` where
        content cannot be moved; empty where blocks have none.
        """
        ...

    def write_blocks(self, model: str, blocks: Sequence[int], content: memoryview) -> float:
        """Put content that was read into these blocks of the device; the seconds that the move took.

        Behind the steps that were submitted, and before those that follow.
        """
        ...

    def submit(self, plan: StepPlan) -> PendingStep:
        """Queue one step behind those before it. Returns at once where the device computes by itself.

        Any exception, here or in `PendingStep.result`, is a defect: the process must end.
        """
        ...


@runtime_checkable
class PreparesBeside(Protocol):
    """An executor that can make a model ready in another thread, while the steps of those that are loaded run."""

    def prepare(self, spec: ModelSpec) -> None:
        """Do ahead what `Executor.load_model` would do of this model next, but for what steps see. Raises as that.

        One call at a time; what it has made ready is given up where another model is loaded first.
        """
        ...


@runtime_checkable
class HostMemory(Protocol):
    """An executor whose host memory for blocks can be read and filled in place, beside its steps."""

    def host_block(self, model: str, block: int) -> Sequence[memoryview]:
        """A block of host memory as it lies there, in pieces, the same ones for every block.

        The caller that reads or fills it sees to it that no step moves it meanwhile.
        """
        ...


@runtime_checkable
class LateMasks(Protocol):
    """An executor whose steps may be submitted before it is known what their draws may give."""

    def give_masks(self, step: PendingStep, masks: Mapping[int, bytes]) -> None:
        """What draws of a step may give whose masks are late (`Draw.is_mask_late`), as `Draw.allowed`, by sequence.

        Those that are left out may give any token. For a step with such draws, once, before its result is asked for and
        before the next step is submitted; soon, since the device may be waiting.
        """
        ...


Loaded = TypeVar("Loaded")


def model_of(name: str, models: Mapping[str, Loaded]) -> Loaded:
    """The loaded model called ``name``; the only one there is where no name is said (`StepPlan.model`)."""
    if name:
        return models[name]
    (only,) = models.values()
    return only
