"""SmolLM2-135M: the engine's greedy tokens are those that `transformers` makes of the same GGUF file."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from gpu_node.engine.engine import Engine
from gpu_node.executors.reference import ReferenceExecutor
from shared.config import EngineOptions, ModelSpec, model_path
from tests.engine import tiny

pytestmark = pytest.mark.model

NUM_PROMPTS = 20
NUM_TOKENS = 8
NUM_ALONE = 6
TIE = 1e-3
"""Logits nearer than this are a tie in float32: either token is right."""


@pytest.fixture(scope="module")
def reference(real_model: ModelSpec) -> LlamaForCausalLM:
    """Weights as `transformers` itself reads them, its own order of rows included.

    `from_pretrained(gguf_file=...)` does the same but asks for a package, accelerate, that we need for nothing else.
    """
    path = str(model_path(real_model))
    config = LlamaConfig(**load_gguf_checkpoint(path, return_tensors=False)["config"])
    model = LlamaForCausalLM(config).to(torch.float32)
    state = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)["tensors"]
    missing = model.load_state_dict(state, strict=False).missing_keys
    assert missing == ["lm_head.weight"]
    model.tie_weights()
    return model.eval()


@pytest.fixture(scope="module")
def engine(real_model: ModelSpec) -> Engine:
    options = EngineOptions(step_tokens=64)
    engine = Engine(ReferenceExecutor(options), options)
    engine.load_model(real_model)
    return engine
