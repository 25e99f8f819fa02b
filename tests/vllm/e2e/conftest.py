"""The cluster of tests/e2e with nodes of vLLM alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.collector import Collector
from tests.e2e.conftest import _needs_redis, client, cluster, collector, undisturbed

__all__ = ["_needs_redis", "client", "cluster", "collector", "undisturbed"]

UP_S = 200
MAX_MODEL_LEN = 8192


@pytest.fixture(scope="package")
def whole_cluster(
    tmp_path_factory: pytest.TempPathFactory, smol: Path, vllm_python: Path, redis_program: Path, collector: Collector
) -> Iterator[Cluster]:
    """Two models on two nodes, each of which runs three requests at a time.

    In float32: answers are compared, and those of bfloat16 hang on what is computed together.
    """
    del redis_program
    vllm = {"python": str(vllm_python), "kv": "host", "args": ["--dtype", "float32"]}
    one = Cluster.create(
        tmp_path_factory.mktemp("e2e"),
        models=[{"name": name, "source": str(smol), "max_model_len": MAX_MODEL_LEN} for name in ("first", "second")],
        nodes=[{"name": name, "engine": "vllm", "num_threads": 1, "vllm": vllm} for name in ("node-0", "node-1")],
        engine={"max_num_seqs": 3, "kv_cache_bytes": 512 << 20, "step_timeout_s": UP_S},
        gateway={"max_body_bytes": 64 << 10, "keep_responses_s": 600},
        otlp_endpoint=collector.url,
    )
    one.environment["OTEL_BSP_SCHEDULE_DELAY"] = "200"  # ms between two exports of spans
    with one.running():
        yield one
