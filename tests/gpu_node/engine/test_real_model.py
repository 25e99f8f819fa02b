"""SmolLM2-135M: the engine's greedy tokens are those that `transformers` makes of the same GGUF file."""

from __future__ import annotations

import random
from functools import cache

import gguf
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from gpu_node.engine.engine import Engine
from gpu_node.executors.reference.executor import ReferenceExecutor
from shared.config.engines.engine import EngineOptions, ModelSpec
from shared.files.model_file import model_path
from tests.gpu_node import tiny

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]  # some 30 s of both cores

NUM_PROMPTS = 20
NUM_ALONE = 7
NUM_TOKENS = 8
TIE = 1e-3
"""Logits nearer than this are a tie in float32: either token is right."""


@pytest.fixture(scope="module")
def reference(real_model: ModelSpec) -> LlamaForCausalLM:
    """Weights as `transformers` itself reads them, its own order of rows included.

    `from_pretrained(gguf_file=...)` does the same but asks for a package, accelerate, that we need for nothing else.
    """
    path = str(model_path(real_model))
    with pytest.MonkeyPatch.context() as patch:  # the same file and the same names, which it asks for again and again
        for name in ("GGUFReader", "get_tensor_name_map"):
            patch.setattr(gguf, name, cache(getattr(gguf, name)))
        metadata = load_gguf_checkpoint(path, return_tensors=False)
        model: LlamaForCausalLM = LlamaForCausalLM(LlamaConfig(**metadata["config"]))
        state = load_gguf_checkpoint(path, True, model)["tensors"]
    missing = model.load_state_dict(state, strict=False).missing_keys
    assert missing == ["lm_head.weight"]
    model.tie_weights()
    model.train(False)
    return model


@pytest.fixture(scope="module")
def engine(real_model: ModelSpec) -> Engine:
    options = EngineOptions(step_tokens=64)
    engine = Engine(ReferenceExecutor(options), options)
    engine.load_model(real_model)
    return engine


def prompts() -> list[list[int]]:
    numbers = random.Random(17)
    lengths = [1, 2, 15, 16, 17, 31, 33, 64, 100, 128, *(numbers.randint(3, 90) for _ in range(NUM_PROMPTS - 10))]
    return [[numbers.randrange(20, 49_000) for _ in range(length)] for length in lengths]


def check_greedy(reference: LlamaForCausalLM, prompt: list[int], output: list[int]) -> None:
    """Each token is the most likely one after those before it: one pass over prompt and output tells for all."""
    assert len(output) == NUM_TOKENS
    with torch.inference_mode():
        logits = reference(torch.tensor([prompt + output[:-1]]), logits_to_keep=NUM_TOKENS).logits[0]
    behind = logits.max(dim=-1).values - logits[torch.arange(NUM_TOKENS), torch.tensor(output)]
    assert float(behind.max()) < TIE, f"{output} is not greedy after {len(prompt)} tokens: {behind.tolist()}"


def test_greedy_tokens_of_a_batch_are_those_of_transformers(engine: Engine, reference: LlamaForCausalLM) -> None:
    texts = prompts()
    outputs = tiny.run(
        engine,
        [tiny.request(str(number), text, NUM_TOKENS, model=model_name(engine)) for number, text in enumerate(texts)],
    )
    for text, output in zip(texts, outputs, strict=True):
        check_greedy(reference, text, output)


def test_greedy_tokens_of_one_request_alone_are_those_of_transformers(
    engine: Engine, reference: LlamaForCausalLM
) -> None:
    for number, text in enumerate(prompts()[:NUM_ALONE]):
        (output,) = tiny.run(engine, [tiny.request(str(number), text, NUM_TOKENS, model=model_name(engine))])
        check_greedy(reference, text, output)


def model_name(engine: Engine) -> str:
    assert engine.model is not None
    return engine.model.name
