"""What workers and their parent tell each other: command lines, shares, metrics and states put together."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gateway.workers.expositions import merge
from gateway.workers.parent_admin import summary
from gateway.workers.parent_metrics import WorkersCollector
from gateway.workers.sockets import open_sockets
from gateway.workers.worker import Worker, parse_worker, share
from gateway.workers.worker_client import WorkerClient
from gateway.workers.worker_pool import WorkerPool
from shared.config.config import ClusterConfig, ConfigError, parse_config
from shared.service.admin.admin import Admin, PortTakenError, serve_admin_on_path

HOST = "127.0.0.1"


# --- command line and limits ------------------------------------------------------------------------------------------


def test_a_worker_is_told_what_its_parent_says() -> None:
    worker = Worker(number=1, num_workers=3, sockets=(5, 6), admin_path="/tmp/a b/1.sock", parent=7)
    assert parse_worker(worker.arguments()) == worker
    assert parse_worker([]) is None


def test_a_gateway_takes_no_other_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse_worker(["--port", "80"])
    assert left.value.code == 2
    assert "the following arguments are required: --worker" in capsys.readouterr().err


def test_each_takes_its_share_of_the_limits() -> None:
    config = ClusterConfig.model_validate({"gateway": {"workers": 3, "max_inflight": 100}})
    mine = share(config, 3).gateway
    assert (mine.max_inflight, mine.max_inflight_bytes) == (33, (128 << 20) // 3)
    assert mine.max_body_bytes == config.gateway.max_body_bytes


def test_limits_that_cannot_be_shared_out_are_all_told_at_once() -> None:
    text = "gateway: {workers: 4, max_inflight: 3, max_inflight_bytes: 300_000, max_body_bytes: 2000}"
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "shares")
    told = str(caught.value)
    assert "max_inflight: each of 4 workers needs one at least" in told
    assert "max_inflight_bytes: a body of max_body_bytes and its payload may need 77536, in each of 4 workers" in told
    assert "take at least 310144" in told


# --- the port ---------------------------------------------------------------------------------------------------------


def test_the_port_is_bound_and_not_open_before_a_worker_listens() -> None:
    (one,) = open_sockets(HOST, 0)
    with one, pytest.raises(ConnectionRefusedError):
        socket.create_connection(one.getsockname())


def test_a_taken_port_is_told() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTakenError, match=f"cannot listen on {HOST}:{port}"):
            open_sockets(HOST, port)


# --- metrics ----------------------------------------------------------------------------------------------------------


def exposition(num_requests: int) -> str:
    registry = CollectorRegistry()
    requests = Counter("treadle_requests_total", "Requests\nby how they ended", ["tenant"], registry=registry)
    requests.labels('a"b').inc(num_requests)
    Histogram("treadle_ttft_seconds", "First token", buckets=[1], registry=registry).observe(0.5)
    Gauge("treadle_inflight_requests", "Held", registry=registry).set(num_requests)
    return generate_latest(registry).decode()


def test_metrics_of_all_workers_are_one_exposition_and_each_sample_says_whose_it_is() -> None:
    own = CollectorRegistry()
    Gauge("treadle_gateway_workers_ready", "Workers that serve", registry=own).set(2)
    Gauge("treadle_inflight_requests", "Held", registry=own).set(9)
    text = merge(own, {"0": exposition(3), "1": exposition(4)}).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families.values()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
    assert found == {
        ("treadle_requests_total", (("tenant", 'a"b'), ("worker", "0"))): 3,
        ("treadle_requests_total", (("tenant", 'a"b'), ("worker", "1"))): 4,
        ("treadle_ttft_seconds_bucket", (("le", "1.0"), ("worker", "0"))): 1,
        ("treadle_ttft_seconds_bucket", (("le", "1.0"), ("worker", "1"))): 1,
        ("treadle_ttft_seconds_bucket", (("le", "+Inf"), ("worker", "0"))): 1,
        ("treadle_ttft_seconds_bucket", (("le", "+Inf"), ("worker", "1"))): 1,
        ("treadle_ttft_seconds_count", (("worker", "0"),)): 1,
        ("treadle_ttft_seconds_count", (("worker", "1"),)): 1,
        ("treadle_ttft_seconds_sum", (("worker", "0"),)): 0.5,
        ("treadle_ttft_seconds_sum", (("worker", "1"),)): 0.5,
        ("treadle_inflight_requests", (("worker", "0"),)): 3,
        ("treadle_inflight_requests", (("worker", "1"),)): 4,
        ("treadle_inflight_requests", ()): 9,
        ("treadle_gateway_workers_ready", ()): 2,
    }
    assert families["treadle_requests"].type == "counter"
    assert families["treadle_requests"].documentation == "Requests\nby how they ended"
    assert text.count("# TYPE treadle_ttft_seconds histogram") == 1


def two_of_which_one_has_died() -> WorkerPool:
    """Worker 0 is ready as life 1, and worker 1 starts again as life 3."""
    pool = WorkerPool(2, 1.0)
    pool.due(0.0)
    pool.heard(1, 1.0, is_ready=True, hangs="")
    pool.due(1.0)
    pool.ended(2, 2.0, "was ended by signal 9")
    pool.due(5.0)
    return pool


def test_the_parent_measures_what_its_workers_cannot() -> None:
    registry = CollectorRegistry()
    registry.register(WorkersCollector(two_of_which_one_has_died()))
    assert registry.get_sample_value("treadle_gateway_workers_ready") == 1
    assert registry.get_sample_value("treadle_gateway_worker_restarts_total", {"worker": "0"}) == 0
    assert registry.get_sample_value("treadle_gateway_worker_restarts_total", {"worker": "1"}) == 1


# --- state ------------------------------------------------------------------------------------------------------------


def test_the_state_sums_what_can_be_counted_and_lists_the_workers() -> None:
    assert summary(two_of_which_one_has_died(), {1: {"inflight": 5, "name": "x"}, 3: {}}) == {
        "inflight": 5,
        "num_ready": 1,
        "workers": [
            {
                "worker": 0,
                "life": 1,
                "is_ready": True,
                "is_leaving": False,
                "num_restarts": 0,
                "inflight": 5,
                "name": "x",
            },
            {"worker": 1, "life": 3, "is_ready": False, "is_leaving": False, "num_restarts": 1},
        ],
    }


async def test_a_worker_is_asked_over_its_path_and_silence_is_no_answer(tmp_path: Path) -> None:
    path = str(tmp_path / "1.sock")
    client = WorkerClient(path)
    try:
        assert await client.ask("/readyz") is None
        admin = Admin(not_ready=lambda: "loading", status=lambda: {"inflight": 2}, registry=CollectorRegistry())
        runner = await serve_admin_on_path(admin, path)
        assert await client.ask("/readyz") == (503, "loading\n")
        assert await client.text("/readyz") is None
        assert await client.status() == {"inflight": 2}
        await runner.cleanup()
        assert await client.status() == {}
    finally:
        await client.aclose()
