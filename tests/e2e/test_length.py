"""A model's longest request, where the configuration leaves it to its files and to the memory of its node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import openai
import pytest
from openai import OpenAI

from tests.e2e.cluster import Cluster

BLOCK_SIZE = 16
BLOCK_BYTES = BLOCK_SIZE * 23_040  # of SmolLM2 135M: 30 layers with keys and values of 3 heads of 64, two bytes each
NUM_BLOCKS = 8
LENGTH = NUM_BLOCKS * BLOCK_SIZE


@pytest.fixture
def small(tmp_path: Path, model_file: Path) -> Iterator[Cluster]:
    """Memory for a part of the 8,192 tokens that the model was trained for."""
    cluster = Cluster.create(
        tmp_path,
        models=[{"name": "only", "source": str(model_file)}],
        nodes=[{"name": "node-0"}],
        engine={"kv_cache_bytes": NUM_BLOCKS * BLOCK_BYTES, "block_size": BLOCK_SIZE},
    )
    with cluster.running():
        yield cluster


def test_one_request_has_all_of_it_and_no_more(small: Cluster) -> None:
    with urlopen(f"{small.url}/v1/models") as answer:
        assert json.load(answer)["data"][0]["max_model_len"] == LENGTH
    assert small.status("node-0")["num_blocks"] == NUM_BLOCKS
    prompt = [1000] * (LENGTH - 4)
    with OpenAI(base_url=f"{small.url}/v1", api_key="none", max_retries=0) as client:
        whole = client.completions.create(
            model="only", prompt=prompt, max_tokens=4, temperature=0, extra_body={"ignore_eos": True}
        )
        assert whole.usage is not None
        assert whole.usage.total_tokens == LENGTH
        with pytest.raises(openai.BadRequestError, match=f"the model's context length is {LENGTH} tokens") as refused:
            client.completions.create(model="only", prompt=prompt, max_tokens=5)
    assert refused.value.code == "context_length_exceeded"
    small.wait_idle()
