"""A tiny model of a family with two adapters, and what merged models give in the place of either.

One adapter changes all layers that can be changed, the other one kind of them, by another rank and scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from gpu_node.engine.border.plan import NO_ADAPTER, Draw, ScheduledSequence
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.messages.requests.payload import Sampling
from tests.gpu_node.adapter_folders import modules_of, save_adapter
from tests.gpu_node.logits import logits_by
from tests.gpu_node.models.test_families_models import save

OPTIONS = EngineOptions(block_size=4, kv_cache_bytes=1 << 20, step_tokens=64)
GREEDY = Sampling(max_tokens=1, temperature=0.0)
TEXTS = [[5, 17, 33, 8, 9, 60, 61], [9, 4, 77, 21, 50], [12, 13, 80, 81, 82, 11], [40, 41, 3]]
ADAPTERS = [0, NO_ADAPTER, 1, 0]
EXACT, ROUNDED = 1e-4, 0.08
"""Largest relative error of float32, and of products of bfloat16."""
OTHER_EXPERTS = 0.15
"""Likewise, where a rounded number may choose another expert."""


class AdaptedFamily:
    """A tiny model, and what it gives with either of its adapters, and without."""

    def __init__(self, family: str, path: Path) -> None:
        model = save(family, path / "model")
        modules = modules_of(family)
        wide = save_adapter(model, path / "wide", modules, rank=5, seed=1)
        narrow = save_adapter(model, path / "narrow", modules[:1], rank=2, alpha=3.0, seed=2, use_rslora=True)
        self.rounded = OTHER_EXPERTS if family == "mixtral" else ROUNDED
        self.models: dict[int, Any] = {NO_ADAPTER: model, 0: wide, 1: narrow}
        self.spec = ModelSpec(
            name="tiny",
            source=str(path / "model"),
            adapters=tuple(AdapterSpec(name, str(path / name)) for name in ("wide", "narrow")),
        )

    def expected(self, texts: Sequence[list[int]], adapters: Sequence[int]) -> torch.Tensor:
        with torch.inference_mode():
            rows = [
                self.models[adapter](torch.tensor([text])).logits[0, -1]
                for text, adapter in zip(texts, adapters, strict=True)
            ]
        return torch.stack(rows)


def rows_of(number: int, start: int = 0, end: int | None = None) -> ScheduledSequence:
    text = TEXTS[number][start:end]
    draws = (Draw(number, GREEDY, 0),) if end is None else ()
    table = tuple(range(2 * number, 2 * number + 2))
    return ScheduledSequence(number, tuple(text), start, table, draws, adapter=ADAPTERS[number])


def check_mixed_batch(executor: Any, case: AdaptedFamily, error: float) -> None:
    """In two steps: each row has what its own merged model gives, up to ``error`` of its norm."""
    assert executor.load_model(case.spec).adapters == ("wide", "narrow")
    logits_by(executor, [rows_of(0, 0, 4), rows_of(2, 0, 5)])
    # two go on with their prompts, the last row of one by itself, and two begin
    whole = logits_by(executor, [rows_of(0, 4), rows_of(1), rows_of(3), rows_of(2, 5)])
    order = [0, 1, 3, 2]
    expected = case.expected([TEXTS[one] for one in order], [ADAPTERS[one] for one in order])
    for ours, theirs in zip(whole, expected, strict=True):
        assert float((ours - theirs).norm() / theirs.norm()) < error
    plain = case.expected([TEXTS[0]], [NO_ADAPTER])[0]
    assert float((expected[0] - plain).norm() / plain.norm()) > 2 * error, "an adapter is no rounding error"
