"""Every number that the gateway takes for drawing gives a token: on the CPU device that of the reference."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from gateway.openai.requests.sampling import MAX_LOGIT_BIAS, MAX_PENALTY, MAX_REPETITION_PENALTY, MIN_REPETITION_PENALTY
from gpu_node.engine.border.plan import Draw
from gpu_node.engine.steps.batch.limits import refusal
from gpu_node.executors.draws.sampler import sample
from gpu_node.kernels.cpu import CpuDevice
from shared.config.engines.engine import EngineOptions
from shared.messages.requests.payload import Sampling
from tests.gpu_node.bookkeeping import model, payload
from tests.gpu_node.executors.cpu.test_cpu_sampler import MAX_ROWS, Case, on_device
from tests.gpu_node.masks import random_mask

VOCAB_SIZE = 300
LEAST = 5e-324
ALMOST_ONE = 1 - 2**-53
EXTREMES: dict[str, list[Any]] = {
    "temperature": [0.0, LEAST, 1e-300, 1e-38, 1e-7, 1.0, 2.0],
    "top_p": [LEAST, 1e-300, 1e-16, 0.5, ALMOST_ONE, 1.0],
    "top_k": [0, 1, 2, VOCAB_SIZE - 1, VOCAB_SIZE, VOCAB_SIZE + 1, 1 << 20],
    "min_p": [0.0, LEAST, 1e-300, 0.5, ALMOST_ONE, 1.0],
    "seed": [0, 1, (1 << 63) - 1],
    "presence_penalty": [-MAX_PENALTY, 0.0, LEAST, MAX_PENALTY],
    "frequency_penalty": [-MAX_PENALTY, 0.0, LEAST, MAX_PENALTY],
    "repetition_penalty": [MIN_REPETITION_PENALTY, 1.0, 1 + 2**-52, MAX_REPETITION_PENALTY],
    "logit_bias": [[], [(0, MAX_LOGIT_BIAS)], [(token, -MAX_LOGIT_BIAS) for token in range(VOCAB_SIZE)]],
}
SCALES = [1e-30, 1.0, 30.0, 1e5, 1e30]


@pytest.fixture(scope="module")
def device() -> Iterator[CpuDevice]:
    with CpuDevice(3) as device:
        yield device


def case(numbers: random.Random) -> Case:
    sampling = Sampling(max_tokens=1, **{name: numbers.choice(values) for name, values in EXTREMES.items()})
    logits = torch.randn(VOCAB_SIZE, generator=torch.Generator().manual_seed(numbers.getrandbits(32)))
    output = numbers.choices(range(VOCAB_SIZE), k=numbers.choice([0, 1, 50]))
    position, prompt = numbers.choice([0, 1 << 30]), numbers.choices(range(VOCAB_SIZE), k=9)
    allowed = numbers.choice([b"", random_mask(numbers, VOCAB_SIZE)])
    draw = Draw(0, sampling, position, prompt_token_ids=prompt, allowed=allowed)
    return logits * numbers.choice(SCALES), draw, output


@pytest.mark.parametrize("seed", range(8))
def test_extremes_give_the_token_of_the_reference(device: CpuDevice, seed: int) -> None:
    numbers = random.Random(seed)
    cases = [case(numbers) for _ in range(MAX_ROWS)]
    expected = [sample(logits, draw, output) for logits, draw, output in cases]
    drawn, _ = on_device(device, "plain", cases)
    for (_, draw, _), token, reference in zip(cases, drawn, expected, strict=True):
        assert reference is not None, draw
        assert token == reference.token_id, draw


@pytest.mark.parametrize("name", list(EXTREMES))
def test_a_node_takes_what_the_gateway_takes(name: str) -> None:
    for value in EXTREMES[name]:
        wanted: Any = [(token, bias) for token, bias in value if token < 100] if name == "logit_bias" else value
        options: dict[str, Any] = {name: wanted}
        assert refusal(payload("a", [1, 2], **options), model(), EngineOptions()) == ""
