"""What an engine answers that nothing disturbs: in this process, with no cluster around it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from gateway.models.models import load_models
from gpu_node.engine.engine import Engine
from gpu_node.executors.cpu.executor import CpuExecutor
from shared.config.config import ClusterConfig
from shared.config.engine import EngineOptions
from tests.e2e.traffic import Ask
from tests.gpu_node import tiny

KV_BYTES = 256 << 20


def answers_alone(model: dict[str, Any], asks: Sequence[Ask]) -> list[str]:
    """Greedy texts of ``asks``, together, by a node's own engine and the gateway's own tokenizer.

    ``model``: as it is configured, by the name that is asked for.
    """
    config = ClusterConfig.model_validate({"models": [model]})
    (spec,), tokenizer = config.models, load_models(config)[model["name"]].tokenizer
    payloads = [
        tiny.request(str(number), tokenizer.encode(ask.prompt), ask.max_tokens, model=ask.model)
        for number, ask in enumerate(asks)
    ]
    options = EngineOptions(kv_cache_bytes=KV_BYTES, max_num_seqs=len(asks))
    with closing(CpuExecutor(options, num_threads=1)) as executor:
        engine = Engine(executor, options)
        engine.load_model(spec)
        return [tokenizer.decode(tokens) for tokens in tiny.run(engine, payloads)]
