"""What operators see: health, metrics, logs and traces of every process; never a prompt or a key."""

from __future__ import annotations

import json
import secrets

from openai import AsyncOpenAI
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.cluster import Cluster, wait_for
from tests.e2e.collector import Collector, Span
from tests.e2e.traffic import API_KEY, PROMPTS

SECRETS = [API_KEY, *PROMPTS, "capital of France", "no log may hold", "🙂"]


def test_every_process_answers_operators(cluster: Cluster) -> None:
    for name in cluster.admin_urls:
        assert cluster.get(name, "/healthz")[0] == 200, name
        assert cluster.get(name, "/readyz") == (200, "ready\n"), name
        assert cluster.status(name), name
        status, text = cluster.get(name, "/metrics")
        assert status == 200, name
        families = {family.name for family in text_string_to_metric_families(text)}
        assert any(family.startswith("treadle_") for family in families), name


def test_status_of_the_command_shows_every_process(cluster: Cluster) -> None:
    done = cluster.treadle("status", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["processes"]}
    assert {name: row["pid"] for name, row in rows.items()} == cluster.pids()
    assert {row["state"] for row in rows.values()} == {"ready"}
    assert {rows[node]["model"] for node in cluster.nodes} <= set(cluster.models)


async def test_a_request_is_found_in_the_log_and_counted(client: AsyncOpenAI, cluster: Cluster) -> None:
    counted = cluster.metric("gateway", "treadle_requests_total")
    raw = await client.completions.with_raw_response.create(model=cluster.models[0], prompt="Hello", max_tokens=3)
    request_id = raw.headers["x-treadle-request-id"]
    usage = raw.parse().usage
    assert usage is not None
    finished = wait_for("the log entry", lambda: [line for line in log_of(cluster, "gateway") if request_id in line])
    (entry,) = [json.loads(line) for line in finished]
    assert (entry["event"], entry["outcome"], entry["model"]) == ("request_finished", "ok", cluster.models[0])
    assert entry["output_tokens"] == usage.completion_tokens
    assert cluster.metric("gateway", "treadle_requests_total") == counted + 1


async def test_one_trace_from_the_client_to_the_node(
    client: AsyncOpenAI, cluster: Cluster, collector: Collector
) -> None:
    trace_id, client_span = secrets.token_hex(16), secrets.token_hex(8)
    raw = await client.chat.completions.with_raw_response.create(
        model=cluster.models[1],
        messages=[{"role": "user", "content": "Say hello."}],
        max_tokens=4,
        extra_headers={"traceparent": f"00-{trace_id}-{client_span}-01"},
    )
    request_id = raw.headers["x-treadle-request-id"]

    def spans() -> dict[str, Span]:
        found = {span.span_id: span for span in collector.spans if span.trace_id == trace_id}
        return found if {"treadle-gateway", "treadle-node"} <= {span.service for span in found.values()} else {}

    found = wait_for("spans of gateway and node", spans)
    (gateway,) = [span for span in found.values() if span.service == "treadle-gateway"]
    (node,) = [span for span in found.values() if span.service == "treadle-node"]
    assert gateway.parent_id == client_span
    assert node.parent_id == gateway.span_id
    assert gateway.attributes["gen_ai.response.id"] == request_id
    assert gateway.attributes["gen_ai.request.model"] == node.attributes["gen_ai.request.model"] == cluster.models[1]
    assert gateway.attributes["gen_ai.usage.output_tokens"] == node.attributes["gen_ai.usage.output_tokens"]
    assert node.attributes["treadle.node"] in cluster.nodes
    assert node.events == ["first token"]
    assert collector.problems == []


def test_logs_are_json_and_hold_no_secret(cluster: Cluster) -> None:
    """Of everything that this session has done so far, deaths included."""
    for name, text in cluster.logs().items():
        for line in text.splitlines():
            try:
                entry = json.loads(line)
            except ValueError as error:
                raise AssertionError(f"{name}: not JSON: {line}") from error
            assert {"event", "level", "timestamp", "service", "instance"} <= set(entry), (name, line)
        assert [secret for secret in SECRETS if secret in text] == [], name


def test_nothing_was_set_aside(cluster: Cluster) -> None:
    """No process of this session met a message that it could not handle."""
    with cluster.redis() as redis:
        assert redis.xrange("treadle:deadletter") == []


def log_of(cluster: Cluster, name: str) -> list[str]:
    return cluster.logs()[f"{name}.log"].splitlines()
