"""A node with vLLM that prefills and one that decodes: requests change between them with their KV."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.cluster import Cluster
from tests.e2e.traffic import PROMPTS, Ask, complete, openai_client

UP_S = 200
ASKS = [Ask("smol", prompt, 40) for prompt in PROMPTS[:3]]


async def test_tokens_of_two_nodes_are_those_of_one(
    tmp_path: Path, smol: Path, vllm_python: Path, redis_program: Path
) -> None:
    """The node that decodes does all of it when the other one is gone: that is what the answers are compared with."""
    del redis_program
    vllm = {"python": str(vllm_python), "kv": "host", "args": ["--dtype", "float32"]}
    cluster = Cluster.create(
        tmp_path,
        models=[{"name": "smol", "source": str(smol), "max_model_len": 1024}],
        nodes=[{"name": one, "engine": "vllm", "vllm": vllm, "phases": one} for one in ("prefill", "decode")],
        engine={"max_num_seqs": len(ASKS), "kv_cache_bytes": 512 << 20, "step_timeout_s": UP_S},
    )
    with cluster.running():
        async with openai_client(cluster) as client:
            moved = await complete(client, ASKS)
            resumed = {
                tier: cluster.metric("decode", "treadle_resumed_requests_total", tier=tier)
                for tier in ("evicted", "none")
            }
            cluster.kill("prefill")
            alone = await complete(client, ASKS)
    assert [answer.text for answer in moved] == [answer.text for answer in alone]
    assert [answer.num_tokens for answer in moved] == [40] * len(ASKS)
    assert resumed == {"evicted": len(ASKS), "none": 0}
