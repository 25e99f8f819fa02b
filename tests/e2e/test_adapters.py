"""A model and its adapters under three names: each has its own answers, also when the node that makes them dies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from gpu_node.models.adapters.adapters import adaptable
from gpu_node.models.architectures.families import build_program
from gpu_node.models.checkpoint import open_checkpoint
from gpu_node.models.hf.hf_names import prefix, stored
from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from tests.e2e.cluster import Cluster
from tests.e2e.traffic import PROMPTS, Answer, Ask, complete, openai_client, stream, underway

NAMES = ("smol", "legal", "rhymes")
NUM_TOKENS = 60
ASKS = [Ask(name, prompt, NUM_TOKENS) for name in NAMES for prompt in PROMPTS[:2]]
RANK, SIZE = 8, 0.06
"""Of random matrices: such an adapter says other things than its model."""


def save_adapter(folder: Path, model_file: Path, seed: int) -> str:
    numbers, config = np.random.default_rng(seed), open_checkpoint(model_file).config
    tensors = {}
    for name, (outputs, inputs) in adaptable(build_program(config)).items():
        module = f"base_model.model.{prefix(config.family)}{stored(name, config).names[0].removesuffix('.weight')}"
        tensors[f"{module}.lora_A.weight"] = SIZE * numbers.standard_normal((RANK, inputs), dtype=np.float32)
        tensors[f"{module}.lora_B.weight"] = SIZE * numbers.standard_normal((outputs, RANK), dtype=np.float32)
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    config_values = {"peft_type": "LORA", "r": RANK, "lora_alpha": RANK, "target_modules": "all-linear"}
    (folder / "adapter_config.json").write_text(json.dumps(config_values))
    return str(folder)


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory, model_file: Path) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("adapters")
    adapters = [
        {"name": name, "source": save_adapter(folder / name, model_file, seed)} for seed, name in enumerate(NAMES[1:])
    ]
    model = {"name": NAMES[0], "source": SMOLLM2_SOURCE, "sha256": SMOLLM2_SHA256, "max_model_len": 512}
    cluster = Cluster.create(
        folder,
        models=[model | {"adapters": adapters}],
        nodes=[{"name": "node-0"}, {"name": "node-1"}],
        engine={"max_num_seqs": len(ASKS), "kv_cache_bytes": 128 << 20},
    )
    with cluster.running():
        yield cluster


async def test_streams_of_adapters_outlive_their_node(adapted: Cluster) -> None:
    async with openai_client(adapted) as client:
        alone = [(await complete(client, [ask]))[0].text for ask in ASKS]
        by_prompt = [alone[number :: len(PROMPTS[:2])] for number in range(2)]
        assert all(len(set(texts)) == len(NAMES) for texts in by_prompt), "adapters change answers"
        answers = [Answer() for _ in ASKS]
        async with asyncio.TaskGroup() as tasks:
            streams = [tasks.create_task(stream(client, *pair)) for pair in zip(ASKS, answers, strict=True)]
            await underway(answers, streams)
            busiest = max(adapted.nodes, key=lambda name: adapted.status(name)["num_running"])
            os.kill(adapted.pids()[busiest], signal.SIGKILL)
    assert [answer.text for answer in answers] == alone
    assert [answer.num_tokens for answer in answers] == [NUM_TOKENS] * len(ASKS)
    adapted.up()


async def test_an_adapter_is_listed_beside_its_model(adapted: Cluster) -> None:
    async with openai_client(adapted) as client:
        models = {one.id: one.model_extra or {} for one in (await client.models.list()).data}
    assert list(models) == list(NAMES)
    assert [models[name]["parent"] for name in NAMES] == [None, "smol", "smol"]
