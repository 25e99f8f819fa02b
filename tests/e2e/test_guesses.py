"""A model under two names, one of which has its tokens guessed: both answer alike, and guesses hold."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared.config.config import SMOLLM2_SHA256, SMOLLM2_SOURCE
from tests.e2e.cluster import Cluster
from tests.e2e.traffic import openai_client

MODEL = {"source": SMOLLM2_SOURCE, "sha256": SMOLLM2_SHA256, "max_model_len": 512}
TEXT = "The bridge of Turin was opened in 1912 by Alma, a baker, after seven years of work."
PROMPT = f"{TEXT}\n{TEXT}\n{TEXT}\nThe bridge of Turin"
NUM_TOKENS = 48


@pytest.fixture(scope="module")
def guessing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster.create(
        tmp_path_factory.mktemp("guesses"),
        models=[
            MODEL | {"name": "plain"},
            MODEL | {"name": "guessed", "speculation": {"method": "ngram", "max_draft_tokens": 8}},
        ],
        nodes=[{"name": "node-0"}],
        engine={"max_num_seqs": 4, "kv_cache_bytes": 128 << 20, "max_models": 2},
    )
    with cluster.running():
        yield cluster


async def test_answers_stay_as_they_are(guessing: Cluster) -> None:
    async with openai_client(guessing) as client:
        for temperature in (0.0, 0.8):
            answers = [
                await client.completions.create(
                    model=model,
                    prompt=PROMPT,
                    max_tokens=NUM_TOKENS,
                    temperature=temperature,
                    logprobs=2,
                    seed=7,
                    extra_body={"ignore_eos": True},
                )
                for model in ("plain", "guessed")
            ]
            plain, guessed = (answer.choices[0] for answer in answers)
            assert guessed.text == plain.text
            assert guessed.logprobs == plain.logprobs
            assert answers[1].usage == answers[0].usage
    node = guessing.nodes[0]
    num_guessed = guessing.metric(node, "vllm:spec_decode_num_draft_tokens_total")
    assert num_guessed >= guessing.metric(node, "vllm:spec_decode_num_accepted_tokens_total") > 0
