"""Others' load generators run unmodified; what they send is kept, and replayed by `tests.gateway.test_peers`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_node.models.config import Family
from tests.e2e.cluster import Cluster
from tests.fuzz.model_weights import hf_config
from tests.gateway.hf_tiny import byte_level, size_of, write_directory
from tests.peers import environment
from tests.peers.recorder import Recorder
from tests.peers.tools import NUM_REQUESTS, OUTPUT_TOKENS, Counts, guidellm, vllm_bench_serve

pytestmark = [
    pytest.mark.peers,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not environment.is_there(), reason="guidellm and vLLM are not there; run `make test-peers`"),
]
RECORDED = Path(__file__).with_name("requests.json")
ALL = Counts(NUM_REQUESTS, 0, NUM_REQUESTS * OUTPUT_TOKENS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One model, whose tokenizer the tools read from the same folder as the gateway."""
    folder = tmp_path_factory.mktemp("peers")
    config = hf_config(Family.LLAMA) | {"max_position_embeddings": 4096, "vocab_size": size_of(byte_level())}
    source = write_directory(folder / "model", "byte-level", config=config)
    models = [{"name": "tiny", "source": str(source), "max_model_len": 2048, "predict_as": "mistral-7b"}]
    nodes = [{"name": "node-0", "executor": "predicted", "device": "a10"}]
    with Cluster.create(folder, models=models, nodes=nodes).running() as running:
        yield running


async def test_load_generators_run_unmodified(cluster: Cluster, tmp_path: Path) -> None:
    tokenizer = cluster.folder / "model"
    async with Recorder(cluster.url).running() as recorder:
        url = recorder.url
        assert await guidellm(url, tokenizer, tmp_path, "/v1/chat/completions") == ALL
        assert await guidellm(url, tokenizer, tmp_path, "/v1/completions") == ALL
        assert await vllm_bench_serve(url, tokenizer, tmp_path) == ALL
        chat = ["--backend", "openai-chat", "--endpoint", "/v1/chat/completions", "--temperature", "0"]
        assert await vllm_bench_serve(url, tokenizer, tmp_path, *chat) == ALL
    if os.environ.get("TREADLE_PEERS_RECORD"):
        RECORDED.write_text(json.dumps(recorder.requests, indent=1) + "\n")
    sent = [_shape(request) for request in recorder.requests]
    assert sorted(sent) == sorted(map(_shape, json.loads(RECORDED.read_text()))), "record what they send anew"


def _shape(request: dict[str, str]) -> tuple[str, str, str]:
    """What does not change from run to run: texts and seeds do."""
    body = json.loads(request["body"]) if request["body"] else {}
    return request["method"], request["path"], ",".join(sorted(body))
