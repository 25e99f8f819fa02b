"""What an engine answers that nothing disturbs: in this process, with no cluster around it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from gateway.models.models import load_models
from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from shared.config.config import ClusterConfig
from shared.config.engines.engine import EngineOptions
from shared.messages.requests.payload import Payload, Sampling
from tests.e2e.traffic import Ask

KV_BYTES = 256 << 20


def answers_alone(model: dict[str, Any], asks: Sequence[Ask]) -> list[str]:
    """Greedy texts of ``asks``, together, by a node's own engine and the gateway's own tokenizer.

    ``model``: as it is configured, by the name that is asked for.
    """
    config = ClusterConfig.model_validate({"models": [model]})
    (spec,), tokenizer = config.models, load_models(config)[model["name"]].tokenizer
    options = EngineOptions(kv_cache_bytes=KV_BYTES, max_num_seqs=len(asks))
    outputs: dict[str, list[int]] = {str(number): [] for number in range(len(asks))}
    with closing(CpuExecutor(options, num_threads=1)) as executor:
        engine = Engine(executor, options)
        engine.load_model(spec)
        for name, ask in zip(outputs, asks, strict=True):
            sampling = Sampling(max_tokens=ask.max_tokens, temperature=0.0, ignore_eos=True)
            assert engine.add(Payload(name, 0, "g", ask.model, tokenizer.encode(ask.prompt), sampling)) == []
        while engine.has_work:
            for chunk in engine.step(now=0.0):
                assert not chunk.error
                outputs[chunk.request_id] += chunk.token_ids
    return [tokenizer.decode(tokens) for tokens in outputs.values()]
