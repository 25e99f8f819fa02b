"""The executor for NVIDIA devices: each operator of a program is a launch, queued without waiting for the one before.

Runs by Triton's interpreter as well, on tensors of the CPU: the same launches, without a device.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter

import torch

from gpu_node.engine.border.executor import StepTooLargeError, model_of
from gpu_node.engine.border.model import LoadedModel
from gpu_node.engine.border.plan import ScheduledSequence, StepPlan
from gpu_node.engine.border.sizing import host_paging
from gpu_node.executors.collectives import ALONE, DeviceGroup
from gpu_node.executors.cuda.draws import MaskedStep, QueuedStep, RemotePart
from gpu_node.executors.cuda.links.links import CudaLinks
from gpu_node.executors.cuda.memory.arena import CudaArena
from gpu_node.executors.cuda.memory.lanes import copy_stream
from gpu_node.executors.cuda.memory.marks import Mark, mark
from gpu_node.executors.cuda.model import CudaBuilder, CudaModel
from gpu_node.executors.cuda.models import CudaModels
from gpu_node.executors.cuda.program.link_ends import Serving, nothing
from gpu_node.executors.draws.token_draws import draws_of
from gpu_node.executors.memory.device_memory import DeviceMemory, device_memory
from gpu_node.graph.passes.draft import Pass
from gpu_node.kernels.link_file import FOLDER
from gpu_node.kernels.token_draw import cell_mark
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.config.pipelines.pipelines import NO_PIPELINES, Pipelines, card_name


class CudaExecutor:
    """Models on one device, their KV blocks in the pages of one arena. Several steps may be in the queue."""

    def __init__(
        self,
        options: EngineOptions,
        device: torch.device,
        *,
        dtype: torch.dtype = torch.bfloat16,
        optimize: bool = True,
        graphs: bool = True,
        passes: Sequence[Pass] = (),
        group: DeviceGroup = ALONE,
        memory: DeviceMemory | None = None,
        pipelines: Pipelines = NO_PIPELINES,
        link_folder: Path = FOLDER,
        meanwhile: Callable[[], object] = nothing,
    ) -> None:
        """``dtype``: of weights, buffers and KV. ``passes`` change each model's program, behind the pass `optimize`.

        Plain paths: ``optimize=False``, the builder's operators; ``graphs=False``, a launch for each in every step.
        ``group``: the devices that share each model's heads. ``memory``: what there is of it, where that is not to be
        asked of the device.
        ``pipelines``: those that models may run. Links to other engines lie in ``link_folder``; where kernels are
        interpreted, ``meanwhile`` is what other devices of this process do while this one waits for them.
        """
        self.device = torch.cuda.get_device_name(device) if device.type == "cuda" else "cuda"
        copies = copy_stream(device)
        serving = Serving(meanwhile=meanwhile)
        self._device = device
        self._models: CudaModels[CudaModel] = CudaModels(
            options,
            device,
            dtype,
            copies,
            memory or device_memory(device, group),
            CudaBuilder(
                options,
                device,
                dtype,
                host=CudaArena(host_paging(options), torch.device("cpu"), is_pinned=device.type == "cuda"),
                copies=copies,
                passes=tuple(passes),
                optimizes=optimize,
                joins_norms=optimize,
                graphs=graphs,
                overlaps_swaps=options.overlap_swaps,
                group=group,
                pipelines=pipelines,
                name=card_name(self.device),
                serving=serving,
            ),
        )
        models = self._models
        self.links = CudaLinks(
            device,
            dtype,
            lambda: models.arena,
            lambda: models.loaded,
            serving,
            link_folder,
            is_on=options.offload != "off" and group.world == 1,
        )
        self._close = weakref.finalize(self, self.links.close)
        self._last_end: Mark = mark(device)

    def close(self) -> None:
        """End all links, and what others wait for. All else goes with the process."""
        self._close()

    @property
    def tiers(self) -> dict[str, str]:
        """Models on the device and in host memory."""
        return self._models.tiers

    def load_model(self, spec: ModelSpec, instead_of: str | None = None) -> LoadedModel:
        """Take a model back from host memory, or read it.

        Raises `ModelFileError` or `ModelTooLargeError`; then nothing has changed, but for `BlocksLostError`.
        """
        return self._models.load(spec, instead_of).model

    def unload_model(self, name: str) -> None:
        """Leave a model to host memory, behind the steps that were submitted."""
        self._models.unload(name)

    def loaded(self, name: str) -> CudaModel:
        """A model that is on the device."""
        return self._models.loaded[name]

    def read_blocks(self, model: str, blocks: Sequence[int], *, swapped_out: bool) -> tuple[memoryview, float]:
        """Copy blocks out of an arena, behind the steps that were submitted."""
        started_s = perf_counter()
        content = self.loaded(model).blocks.read(blocks, swapped_out=swapped_out)
        return content, perf_counter() - started_s

    def write_blocks(self, model: str, blocks: Sequence[int], content: memoryview) -> float:
        """Copy blocks into the arena, behind the steps that were submitted."""
        started_s = perf_counter()
        self.loaded(model).blocks.write(blocks, content)
        return perf_counter() - started_s

    def submit(self, plan: StepPlan) -> QueuedStep | MaskedStep:
        """Queue a step behind those before it; returns when all is launched, but for draws that wait for masks.

        Raises `StepTooLargeError` where the device has no memory left: what has begun of the step is of no use.
        """
        try:
            return self._submit(plan)
        except torch.OutOfMemoryError as error:
            raise StepTooLargeError(
                f"no memory on the device for a step of {plan.num_tokens} tokens: lower device_memory_share or "
                f"kv_cache_bytes, step_tokens or max_num_seqs ({error})"
            ) from error

    def give_masks(self, step: MaskedStep, masks: Mapping[int, bytes]) -> None:
        """As `LateMasks`; queues the step's draws."""
        step.give_masks(masks)

    def _submit(self, plan: StepPlan) -> QueuedStep | MaskedStep:
        model = model_of(plan.model, self._models.loaded)
        before, begin = self._last_end, mark(self._device)
        draws = draws_of(model.feedback, plan.sequences)
        sequence_ids = tuple(draw.sequence_id for part in plan.sequences for draw in part.draws)
        first_cell = model.cells.take(len(draws))
        link = self.links.sender_of(model.prepared.spec.name) if plan.needs_receiver else None
        is_lost = None if link is None else link.step(plan.generation)
        logits = model.run(plan)
        model.feedback.remember({one: cell_mark(first_cell + number) for number, one in enumerate(sequence_ids)})
        nums_top = tuple(draw.num_top for draw in draws)

        def draw(masks: Mapping[int, bytes]) -> QueuedStep:
            told = [
                one._replace(allowed=masks.get(who, one.allowed)) for who, one in zip(sequence_ids, draws, strict=True)
            ]
            tokens, logprobs = model.draw(logits, told if masks else draws, first_cell)
            embeddings = model.embeddings(logits)
            remote = None if link is None or is_lost is None else RemotePart.of(is_lost, link, plan.generation)
            self._last_end = mark(self._device)
            model.blocks.behind_rows()  # behind the mark: no request that waits for tokens waits for a swap
            return QueuedStep(
                sequence_ids, nums_top, tokens, logprobs, embeddings, before, begin, self._last_end, remote
            )

        return MaskedStep(draw) if any(one.is_mask_late for one in draws) else draw({})

    def logits(self, sequences: Sequence[ScheduledSequence], model: str = "") -> torch.Tensor:
        """Write the sequences' keys and values; returns float32 [sequences that draw, vocabulary], in their order."""
        with torch.inference_mode():
            return model_of(model, self._models.loaded).launch(sequences).clone()
