"""`treadle up` and `treadle down`: what they start, what they refuse, what they leave behind."""

from __future__ import annotations

import hashlib
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from shared.config.config import SMOLLM2_SHA256
from tests.e2e.cluster import HOST, Cluster, runs
from tests.e2e.traffic import PROMPTS
from tests.ports import free_port_range

KEY = "sk-of-acme-which-no-log-may-hold"
ENGINE = {"kv_cache_bytes": 64 << 20}


def small(folder: Path, model: dict[str, Any], **config: Any) -> Cluster:
    """One model on one node."""
    models = [{"name": "only", "max_model_len": 256} | model]
    return Cluster.create(folder, models=models, nodes=[{"name": "node-0"}], engine=ENGINE, **config)


def refused(cluster: Cluster) -> str:
    """A start that must fail: what it says. Nothing of the cluster is left."""
    done = cluster.treadle("up")
    try:
        assert done.returncode in (1, 2), done.stderr
        assert "Traceback" not in done.stderr
        assert cluster.members() == []
    finally:
        cluster.treadle("down")
    return re.sub(r"\s+", " ", done.stderr)


@pytest.fixture
def foreign() -> Iterator[subprocess.Popen[bytes]]:
    """A process of somebody else, which a cluster must leave alone."""
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_up_twice_down_and_up_again_on_the_same_data(
    tmp_path: Path, model_file: Path, whole_cluster: Cluster, foreign: subprocess.Popen[bytes]
) -> None:
    others = whole_cluster.pids()
    model = {"source": str(model_file), "sha256": SMOLLM2_SHA256}
    cluster = small(tmp_path, model, keys=[{"key": KEY, "tenant": "acme", "slo_classes": ["batch-1"]}])
    try:
        cluster.up()
        first = cluster.pids()
        text = capital(cluster)
        assert "Paris" in text
        assert "everything ran already" in cluster.up()
        assert cluster.pids() == first
        members = [process.pid for process in cluster.members()]
        assert set(members) > set(first.values()), "the engine is no recorded process"
        cluster.down()
        assert cluster.members() == []
        assert not any(runs(pid) for pid in [*members, *first.values()])
        assert cluster.pids() == {}
        assert foreign.poll() is None
        cluster.up()
        assert not set(cluster.pids().values()) & set(first.values())
        assert capital(cluster) == text
        cluster.wait_idle()
        assert not any(KEY in log for log in cluster.logs().values())
    finally:
        cluster.down()
    assert cluster.members() == []
    assert whole_cluster.pids() == others
    assert whole_cluster.missing() == []


def capital(cluster: Cluster) -> str:
    """Ask with the key; without it, or beyond what it allows, nothing is answered."""
    with OpenAI(base_url=f"{cluster.url}/v1", api_key=KEY, max_retries=0) as client:
        answer = client.completions.create(model="only", prompt="The capital of France is", max_tokens=8, temperature=0)
        with pytest.raises(openai.PermissionDeniedError):
            client.completions.create(model="only", prompt=PROMPTS[0], extra_body={"slo": "interactive"})
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="sk-wrong").models.list()
    return answer.choices[0].text


def test_a_taken_port_is_named(tmp_path: Path, model_file: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        said = refused(small(tmp_path, {"source": str(model_file)}, gateway={"port": port}))
    assert f"port {port} for gateway cannot be used" in said
    assert "gateway.port" in said


def test_an_unreachable_redis_is_named(tmp_path: Path, model_file: Path) -> None:
    port = free_port_range(1)
    url = f"redis://:s3cret@{HOST}:{port}/0"
    said = refused(small(tmp_path, {"source": str(model_file)}, redis_url=url))
    assert f"Redis at redis://{HOST}:{port}/0 does not answer" in said
    assert "s3cret" not in said


@pytest.mark.parametrize("has_digest", [True, False])
def test_a_truncated_model_file_is_named_with_its_digest(tmp_path: Path, model_file: Path, has_digest: bool) -> None:
    broken = tmp_path / "broken.gguf"
    with model_file.open("rb") as whole:
        broken.write_bytes(whole.read(model_file.stat().st_size // 2))
    model = {"source": str(broken)} | ({"sha256": SMOLLM2_SHA256} if has_digest else {})
    said = refused(small(tmp_path, model))
    assert str(broken) in said
    assert hashlib.sha256(broken.read_bytes()).hexdigest() in said
    assert not has_digest or SMOLLM2_SHA256 in said


def test_a_missing_model_file_is_named(tmp_path: Path) -> None:
    said = refused(small(tmp_path, {"source": str(tmp_path / "nothing.gguf")}))
    assert f"{tmp_path / 'nothing.gguf'} does not exist" in said
