"""In every family, a batch of requests for a model and for two of its adapters gives what three merged models give."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gpu_node.executors.cpu.executor import CpuExecutor
from gpu_node.executors.reference.executor import ReferenceExecutor
from gpu_node.graph.passes.fuse import fuse
from shared.config.engines.engine import ModelSpec
from tests.gpu_node.adapted_family import (
    ADAPTERS,
    EXACT,
    OPTIONS,
    ROUNDED,
    TEXTS,
    AdaptedFamily,
    check_mixed_batch,
    rows_of,
)
from tests.gpu_node.logits import logits_by
from tests.gpu_node.models.test_families_models import FAMILIES

pytestmark = pytest.mark.slow

MAKERS: dict[str, Callable[[], Any]] = {
    "reference": lambda: ReferenceExecutor(OPTIONS),
    "reference, fused": lambda: ReferenceExecutor(OPTIONS, passes=[fuse]),
    "cpu": lambda: CpuExecutor(OPTIONS, 2),
    "cpu, plain": lambda: CpuExecutor(OPTIONS, 1, optimize=False),
}


@pytest.fixture(scope="module", params=FAMILIES, ids=str)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AdaptedFamily:
    return AdaptedFamily(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("maker", MAKERS)
def test_a_mixed_batch_gives_what_merged_models_give(case: AdaptedFamily, maker: str) -> None:
    check_mixed_batch(MAKERS[maker](), case, case.rounded if maker.startswith("cpu") else EXACT)


def test_rows_do_not_depend_on_whose_are_beside_them(case: AdaptedFamily) -> None:
    executor = CpuExecutor(OPTIONS, 2)
    executor.load_model(case.spec)
    alone = [logits_by(executor, [rows_of(number)])[0] for number in range(4)]
    together = logits_by(executor, [rows_of(number) for number in range(4)])
    torch.testing.assert_close(together, torch.stack(alone), rtol=0, atol=0)
    without = CpuExecutor(OPTIONS, 2)
    without.load_model(ModelSpec(name="tiny", source=case.spec.source))
    torch.testing.assert_close(logits_by(without, [rows_of(1)])[0], alone[1], rtol=0, atol=0)


def test_matrices_of_adapters_are_not_rounded_to_int8(tmp_path: Path) -> None:
    case = AdaptedFamily("llama", tmp_path)
    spec = replace(case.spec, weights="int8")
    logits = []
    for executor in (ReferenceExecutor(OPTIONS), CpuExecutor(OPTIONS, 2)):
        executor.load_model(spec)
        logits.append(logits_by(executor, [rows_of(number) for number in range(4)]))
    theirs, ours = logits
    assert float((ours - theirs).norm() / theirs.norm()) < ROUNDED
    merged = case.expected(TEXTS, ADAPTERS)
    assert float((theirs - merged).norm() / merged.norm()) < ROUNDED
