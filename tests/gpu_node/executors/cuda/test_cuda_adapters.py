"""Adapters on the CUDA device: every family beside merged models, and steps that are replayed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gpu_node.executors.cuda.executor import CudaExecutor
from tests.gpu_node.adapted_family import EXACT, OPTIONS, AdaptedFamily, check_mixed_batch, rows_of
from tests.gpu_node.kernels.triton.buffers import DEVICE
from tests.gpu_node.logits import logits_by

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")


@pytest.mark.parametrize("family", ["llama-llama3", "qwen2-window", "mixtral", "opt", "gpt2"])
def test_a_mixed_batch_gives_what_merged_models_give(family: str, tmp_path: Path) -> None:
    check_mixed_batch(CudaExecutor(OPTIONS, DEVICE, dtype=torch.float32), AdaptedFamily(family, tmp_path), EXACT)


@pytest.mark.parametrize(("graphs", "optimize"), [(False, True), (True, False)])
def test_rows_do_not_depend_on_whose_are_beside_them(tmp_path: Path, *, graphs: bool, optimize: bool) -> None:
    case = AdaptedFamily("qwen3", tmp_path)
    executor = CudaExecutor(OPTIONS, DEVICE, dtype=torch.float32)
    executor.load_model(case.spec)
    alone = [logits_by(executor, [rows_of(number)])[0] for number in range(4)]
    together = logits_by(executor, [rows_of(number) for number in range(4)])
    torch.testing.assert_close(together, torch.stack(alone), rtol=0, atol=1e-5)
    plain = CudaExecutor(OPTIONS, DEVICE, dtype=torch.float32, graphs=graphs, optimize=optimize)
    plain.load_model(case.spec)
    torch.testing.assert_close(logits_by(plain, [rows_of(number) for number in range(4)]), together, rtol=0, atol=1e-4)
