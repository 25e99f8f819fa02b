"""Which models are on a CUDA device, and how they come and go: weights, memory for KV, and what steps need beside.

A model that goes for another leaves first, since a device seldom has room for both; where the other then cannot be
loaded, it comes back. Its blocks are where they were, unless memory for KV is what others leave (`left_for_kv`): then
that memory was given up with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

import torch

from gpu_node.engine.border.executor import BlocksLostError, ModelTooLargeError
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.sizing import least_kv_bytes, loaded_model
from gpu_node.executors.cuda.memory.arena import CudaArena
from gpu_node.executors.cuda.memory.blocks import CudaBlocks
from gpu_node.executors.cuda.memory.weights import to_device, to_host
from gpu_node.executors.memory.device_memory import DeviceMemory, left_for_kv
from gpu_node.executors.memory.host_tier import HostTier
from gpu_node.executors.piped import NOT_PIPED, PipedProgram
from gpu_node.graph.program import Program
from gpu_node.kernels.triton.cache import MAX_LINES
from gpu_node.models.adapters.adapters import NO_ADAPTERS, Adapters
from gpu_node.models.checkpoint import Checkpoint
from gpu_node.models.config import ModelConfig
from gpu_node.models.weights.weights import load_weights
from shared.config.engines.engine import MIN_MODEL_LEN, EngineOptions, ModelSpec
from shared.files.kv_paging import LINE_BYTES, paging
from shared.files.model_file import ModelFileError


@dataclass(frozen=True, slots=True)
class PreparedOnHost:
    """A model, but for what it has on the device."""

    spec: ModelSpec
    config: ModelConfig
    """Of this device's heads."""
    program: Program
    checkpoint: Checkpoint
    piped: PipedProgram = NOT_PIPED
    adapters: Adapters = NO_ADAPTERS
    weights: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """In host memory or, of a loaded model, on the device; none of a model that was not read yet."""
    kv_cache_bytes: int | None = None
    """What was left for KV when the model was loaded first."""
    max_model_len: int | None = None
    """Tokens, where the configuration leaves it to what the device has beside the weights."""

    image_weights: str = ""
    adapter_weights: tuple[str, ...] = ()
    """As `gpu_node.executors.memory.kv_identity` has both."""

    @property
    def known_spec(self) -> ModelSpec:
        """With the length that was found."""
        return self.spec if self.max_model_len is None else replace(self.spec, max_model_len=self.max_model_len)


class LoadedOnDevice(Protocol):
    """A model on the device."""

    @property
    def prepared(self) -> PreparedOnHost:
        """With its weights there."""
        ...

    @property
    def blocks(self) -> CudaBlocks:
        """Its KV."""
        ...


Model = TypeVar("Model", bound=LoadedOnDevice)


class Builder(Protocol[Model]):
    """Makes models ready to compute."""

    def open(self, spec: ModelSpec) -> PreparedOnHost:
        """Read what a model is, and make its program. Raises `ModelFileError`."""
        ...

    def build(self, prepared: PreparedOnHost, model: LoadedModel, arena: CudaArena) -> Model:
        """All that its steps need beside weights and KV."""
        ...

    def run_largest_step(self, model: Model) -> None:
        """Wait for the step that takes most memory."""
        ...


class CudaModels(Generic[Model]):
    """The models of one device and of its host tier, and the memory that the blocks of the former lie in."""

    def __init__(
        self,
        options: EngineOptions,
        device: torch.device,
        dtype: torch.dtype,
        copies: torch.cuda.Stream | None,
        memory: DeviceMemory | None,
        builder: Builder[Model],
    ) -> None:
        """``dtype``: of weights and KV. ``copies``: the queue that weights go by. ``memory`` is None where there is
        nothing to measure."""
        if options.kv_cache_bytes is None and (memory is None or options.num_sharing > 1):
            raise ValueError("kv_cache_bytes is needed: it is measured on a device that has one model at a time")
        self.loaded: dict[str, Model] = {}
        self._options = options
        self._device = device
        self._dtype = dtype
        self._copies = copies
        self._memory = memory
        self._builder = builder
        self._arena: CudaArena | None = None
        self._left: HostTier[PreparedOnHost] = HostTier(options.host_models, lambda _: None)

    @property
    def tiers(self) -> dict[str, str]:
        """Models on the device and in host memory."""
        return self._left.tiers(self.loaded)

    @property
    def arena(self) -> CudaArena | None:
        """Of all blocks; None before there is a model."""
        return self._arena

    def load(self, spec: ModelSpec, instead_of: str | None) -> Model:
        """As `Executor.load_model`."""
        if instead_of == spec.name:
            return self._exchange(self.loaded[instead_of].prepared, self._builder.open(spec))
        assert spec.name not in self.loaded
        prepared = self._with_length(self._left.take(spec) or self._builder.open(spec))
        leaver = None
        failure: ModelFileError | ModelTooLargeError | None = self._lack_of_room(prepared)
        if failure is None:
            leaver = None if instead_of is None else self._take_off(instead_of)
            failure = self._try_to_enter(prepared)
        if failure is not None:
            if prepared.weights:
                self._left.put(spec, prepared)
            if leaver is not None:
                self.loaded[leaver.spec.name] = self._enter(leaver)
                failure = BlocksLostError(str(failure)) if self._is_measured else failure
            raise failure
        if leaver is not None:
            self._left.put(leaver.spec, leaver)
        return self.loaded[spec.name]

    def unload(self, name: str) -> None:
        """As `Executor.unload_model`."""
        leaver = self._take_off(name, is_kept=self._options.host_models > 0)
        self._left.put(leaver.spec, leaver)

    def _exchange(self, leaver: PreparedOnHost, prepared: PreparedOnHost) -> Model:
        """The same model with other adapters, over the same KV: those take what the configuration has left free."""
        name = leaver.spec.name
        prepared = replace(prepared, kv_cache_bytes=leaver.kv_cache_bytes, max_model_len=leaver.max_model_len)
        failure: ModelFileError | ModelTooLargeError | None = self._lack_of_room(prepared) or self._growth(prepared)
        if failure is None:
            leaver = self._take_off(name, keeps_kv=True)
            failure = self._try_to_enter(prepared, keeps_kv=True)
            if failure is not None:
                self.loaded[name] = self._enter(leaver)
        if failure is not None:
            raise failure
        return self.loaded[name]

    def _try_to_enter(
        self, prepared: PreparedOnHost, *, keeps_kv: bool = False
    ) -> ModelFileError | ModelTooLargeError | None:
        """Why it could not, without the frames that hold what it had on the device."""
        failure: ModelFileError | ModelTooLargeError
        try:
            self.loaded[prepared.spec.name] = self._enter(prepared)
        except ModelFileError as error:
            failure = ModelFileError(str(error))
        except ModelTooLargeError as error:
            failure = ModelTooLargeError(str(error))
        except torch.OutOfMemoryError as error:
            failure = ModelTooLargeError(
                f"model {prepared.spec.name!r}: weights of {_gb(self._weight_bytes(prepared))}, KV and steps find no "
                f"room on the device: {error}"
            )
        else:
            return None
        self._clear(keeps_kv=keeps_kv)
        return failure

    def _enter(self, prepared: PreparedOnHost) -> Model:
        """Bring a model onto the device. Raises `torch.OutOfMemoryError`, too."""
        if prepared.weights:
            weights = to_device(prepared.weights, self._device, self._copies)
        else:
            spec = prepared.spec
            weights = load_weights(
                prepared.checkpoint,
                prepared.program,
                spec.load_format,
                adapters=prepared.adapters,
                device=self._device,
                dtype=self._dtype,
            )
        prepared = replace(prepared, weights=weights)
        if self._is_measured and prepared.kv_cache_bytes is None:
            prepared = self._measured(prepared)
        kv_bytes = self._options.kv_cache_bytes or prepared.kv_cache_bytes
        assert kv_bytes is not None
        if self._arena is None:
            self._arena = CudaArena(paging(kv_bytes, self._options.num_sharing), self._device)
        return self._build(prepared, kv_bytes, self._arena)

    def _build(self, prepared: PreparedOnHost, kv_bytes: int, arena: CudaArena) -> Model:
        layout = f"cuda: {self._dtype} [layer][head][keys, values][token], {prepared.image_weights}"
        model = loaded_model(
            prepared.known_spec,
            prepared.config,
            self._options,
            self._dtype.itemsize,
            layout,
            kv_bytes,
            adapter_layouts=prepared.adapter_weights,
        )
        return self._builder.build(prepared, model, arena)

    def _take_off(self, name: str, *, is_kept: bool = True, keeps_kv: bool = False) -> PreparedOnHost:
        """Take a model off the device, behind the steps that were submitted; it is in host memory then."""
        model = self.loaded.pop(name)
        model.blocks.drain()
        weights = to_host(model.prepared.weights, self._copies) if is_kept else {}
        prepared = replace(model.prepared, weights=weights)
        del model
        self._clear(keeps_kv=keeps_kv)
        return prepared

    def _clear(self, *, keeps_kv: bool) -> None:
        """Give up what no model on the device has any more."""
        if self._is_measured and not keeps_kv:
            self._arena = None
        if self._memory is not None:
            self._memory.trim()

    # --- room ---------------------------------------------------------------------------------------------------------

    @property
    def _is_measured(self) -> bool:
        """KV has what is left beside the one model that there is."""
        return self._options.kv_cache_bytes is None

    def _with_length(self, prepared: PreparedOnHost) -> PreparedOnHost:
        """Where it is not said how long a sequence may be, and KV is what will be left: its context, as far as half of
        what the weights leave goes. So steps find room beside it, and two sequences run together."""
        if not self._is_measured or prepared.spec.max_model_len or prepared.max_model_len or self._memory is None:
            return prepared
        block_size = self._options.block_size
        one_block = replace(prepared, max_model_len=block_size)
        left_bytes = (self._room_bytes - self._weight_bytes(prepared)) // 2
        tokens = left_bytes // self._least_kv_bytes(one_block) * block_size
        return replace(prepared, max_model_len=min(prepared.config.max_length, max(MIN_MODEL_LEN, tokens)))

    def _measured(self, prepared: PreparedOnHost) -> PreparedOnHost:
        """With what is left for KV, seen by the largest step over no more KV than a single sequence needs."""
        assert self._memory is not None
        least_bytes = self._least_kv_bytes(prepared)
        self._memory.trim()
        arena = CudaArena(paging(least_bytes, 1), self._device)
        arena.words.zero_()  # the step reads it
        trial = self._build(prepared, least_bytes, arena)
        self._builder.run_largest_step(trial)
        used_bytes = self._memory.used_bytes()
        del trial, arena
        self._memory.trim()
        share = self._options.device_memory_share
        kv_bytes = left_for_kv(self._memory.total_bytes, share, used_bytes, least_bytes)
        if kv_bytes < least_bytes:
            raise ModelTooLargeError(
                f"model {prepared.spec.name!r}: weights of {_gb(self._weight_bytes(prepared))} and steps leave "
                f"{_gb(max(0, kv_bytes))} of {self._share()}; one sequence of full length needs {_gb(least_bytes)} of "
                "KV: raise device_memory_share, or lower max_model_len, step_tokens or max_num_seqs"
            )
        return replace(prepared, kv_cache_bytes=min(kv_bytes, MAX_LINES * LINE_BYTES))

    def _lack_of_room(self, prepared: PreparedOnHost) -> ModelTooLargeError | None:
        """What can be known before anything is loaded, or gone."""
        if self._memory is None:
            return None
        weight_bytes = self._weight_bytes(prepared)
        kv_bytes = self._options.kv_cache_bytes or self._least_kv_bytes(prepared)
        if weight_bytes + kv_bytes <= self._room_bytes:
            return None
        return ModelTooLargeError(
            f"model {prepared.spec.name!r}: weights of {_gb(weight_bytes)} and KV of {_gb(kv_bytes)} are more than "
            f"{self._share()}"
        )

    def _growth(self, prepared: PreparedOnHost) -> ModelTooLargeError | None:
        """KV took what was left when the model was loaded first: more weights may take half of the reserve."""
        if self._memory is None or prepared.kv_cache_bytes is None:
            return None
        taken_bytes = self._weight_bytes(prepared) + prepared.kv_cache_bytes
        if taken_bytes <= (self._room_bytes + self._memory.total_bytes) // 2:
            return None
        return ModelTooLargeError(
            f"model {prepared.spec.name!r}: its KV, {_gb(prepared.kv_cache_bytes)}, leaves no room for weights of "
            f"{_gb(self._weight_bytes(prepared))} with these adapters; restart the node, which measures anew"
        )

    @property
    def _room_bytes(self) -> int:
        """What weights, KV and steps may take together."""
        assert self._memory is not None
        return int(self._memory.total_bytes * self._options.device_memory_share)

    def _share(self) -> str:
        assert self._memory is not None
        return f"{_gb(self._room_bytes)}, the device_memory_share of {_gb(self._memory.total_bytes)}"

    def _weight_bytes(self, prepared: PreparedOnHost) -> int:
        return sum(weight.num_numbers for weight in prepared.program.weights) * self._dtype.itemsize

    def _least_kv_bytes(self, prepared: PreparedOnHost) -> int:
        return least_kv_bytes(prepared.known_spec, prepared.config, self._options, self._dtype.itemsize)


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.3g} GB"
