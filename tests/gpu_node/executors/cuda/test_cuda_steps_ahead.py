"""Steps are queued before the tokens of those before them are read, and these tokens stay on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_node.engine.border.plan import DRAWN, Draw, ScheduledSequence, StepPlan
from gpu_node.executors.cuda.executor import CudaExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from gpu_node.kernels.triton.launch import INTERPRETED, recording
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Sampling
from tests.gpu_node import tiny
from tests.gpu_node.kernels.triton.buffers import DEVICE

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")

OPTIONS = EngineOptions(kv_cache_bytes=8 << 20, block_size=4, max_num_seqs=4, max_models=2)
SAMPLINGS = [
    Sampling(max_tokens=8, temperature=0.0),
    Sampling(max_tokens=8, temperature=0.9, seed=3, top_k=20),
    Sampling(max_tokens=8, temperature=0.7, seed=4, presence_penalty=1.0),
]
PROMPTS = [(5, 6, 7), (8,), (9, 10, 11, 12)]


def steps(model: str, num_steps: int) -> list[StepPlan]:
    """Three prompts, then one token each: drawn in the step before, whose result nobody has seen yet."""
    plans = []
    for step in range(num_steps):
        parts = []
        for number, (ids, sampling) in enumerate(zip(PROMPTS, SAMPLINGS, strict=True)):
            draw = Draw(number, sampling, step, prompt_token_ids=ids)
            table = tuple(range(3 * number, 3 * number + 3))
            given, start = ((DRAWN,), len(ids) + step - 1) if step else (ids, 0)
            parts.append(ScheduledSequence(number, given, start, table, (draw,)))
        plans.append(StepPlan(tuple(parts), model=model))
    return plans


def loaded(made: Any, paths: Sequence[Path]) -> Any:
    for name, path in zip(("one", "other"), paths, strict=False):
        made.load_model(ModelSpec(name=name, source=str(path), max_model_len=32))
    return made


def test_all_steps_of_two_models_are_queued_before_any_result_is_read(tiny_path: Path, tmp_path: Path) -> None:
    other = tiny.write_gguf(tmp_path / "other.gguf", tiny.tensors_of(tiny.make_model(seed=1)))
    plans = [plan for pair in zip(steps("one", 3), steps("other", 3), strict=True) for plan in pair]
    # blocks of the two models lie in pages of their own
    plans = [moved(plan, 3 * OPTIONS.max_models * 100) if plan.model == "other" else plan for plan in plans]
    plain = loaded(ReferenceExecutor(OPTIONS), (tiny_path, other))
    ours = loaded(CudaExecutor(OPTIONS, DEVICE, dtype=torch.float32), (tiny_path, other))
    running = [ours.submit(plan) for plan in plans]
    expected = [plain.submit(plan).result().token_ids for plan in plans]
    assert [dict(step.result().token_ids) for step in running] == expected


def moved(plan: StepPlan, num_blocks: int) -> StepPlan:
    """With its blocks so much further on."""
    parts = [
        ScheduledSequence(
            part.sequence_id,
            part.token_ids,
            part.start,
            tuple(block + num_blocks for block in part.block_table),
            part.draws,
        )
        for part in plan.sequences
    ]
    return StepPlan(tuple(parts), model=plan.model)


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes what reads the device's memory and would have to wait for it."""

    WAITS = ("_local_scalar_dense", "equal", "is_nonzero", "nonzero", "_to_copy", "masked_select", "unique")

    def __init__(self, memory: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._memory = {tensor.untyped_storage().data_ptr() for tensor in memory}
        self.found: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        tensors = [one for one in args if isinstance(one, torch.Tensor)]
        if any(one.untyped_storage().data_ptr() in self._memory for one in tensors):
            self.found += [name for name in self.WAITS if name == func.overloadpacket.__name__]
        return func(*args, **(kwargs or {}))


@pytest.mark.skipif(not INTERPRETED, reason="watches memory of the CPU that stands for a device's")
def test_queueing_a_step_reads_nothing_that_the_device_computes(tiny_path: Path) -> None:
    made = loaded(CudaExecutor(OPTIONS, DEVICE, dtype=torch.float32, graphs=False), (tiny_path,))
    model = made.loaded("one")
    watch = Watch([*model.program.lowered.buffers.values(), model.tokens.cells])
    with recording(lambda _name, _run: None), watch:  # kernels are not what waits
        for plan in steps("one", 3):
            made.submit(plan)
    assert watch.found == []
    with watch:
        int(model.tokens.cells[0])
    assert watch.found == ["_local_scalar_dense"]


def test_warming_up_changes_no_answer(tiny_path: Path) -> None:
    found = []
    for warms_up in (True, False):
        options = EngineOptions(kv_cache_bytes=1 << 20, block_size=4, max_num_seqs=2, step_tokens=4)
        made = loaded(CudaExecutor(options, DEVICE, dtype=torch.float32), (tiny_path,))
        if warms_up:
            made.loaded("one").warm_up()
        part = ScheduledSequence(0, (5, 6, 7), 0, (0,), (Draw(0, SAMPLINGS[1], 0),))
        found.append(dict(made.submit(StepPlan((part,))).result().token_ids))
    assert found[0] == found[1]
