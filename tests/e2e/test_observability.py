"""What operators see: health, metrics, logs and traces of every process; never a prompt or a key."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
from itertools import pairwise

from openai import AsyncOpenAI
from prometheus_client.parser import text_string_to_metric_families

from observability.catalogue import catalogue
from tests.e2e.cluster import Cluster, wait_for
from tests.e2e.collector import Collector
from tests.e2e.traffic import API_KEY, NUM_BEFORE, PROMPTS

LONG = 600  # tokens; at least some seconds of work

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


def test_every_process_exports_what_the_catalogue_says_of_it(cluster: Cluster) -> None:
    services = {"queue-manager": "queue manager", "scheduler": "scheduler", "kv-manager": "KV manager"}
    rooms = {name: {room, "each service"} for name, room in services.items()}
    rooms |= {node: {"node", "gateway, node"} for node in cluster.nodes}
    rooms["gateway"] = {"gateway", "gateway, node"}
    assert rooms.keys() == cluster.admin_urls.keys()
    for name, of_process in rooms.items():
        _, text = cluster.get(name, "/metrics")
        exported = {family.name: family.type for family in text_string_to_metric_families(text)}
        promised = {family.name: family.kind for family in catalogue() if family.process in of_process}
        assert promised.items() <= exported.items(), name


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


async def test_one_trace_from_the_client_to_the_last_token(
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
    wait_for("spans of gateway and node", lambda: complete_trace(collector, trace_id))
    gateway, submit, wait, run = collector.trace(trace_id)
    assert [gateway.parent_id, submit.parent_id, wait.parent_id, run.parent_id] == [client_span, *[gateway.span_id] * 3]
    assert (gateway.service, gateway.name) == ("treadle-gateway", f"chat {cluster.models[1]}")
    assert (submit.service, submit.name) == ("treadle-queue-manager", "queue-manager submit")
    assert (wait.service, wait.name) == ("treadle-node", "queue wait")
    assert (run.service, run.name) == ("treadle-node", "node run")
    # the client's call holds all; one thing follows the other, as exactly as Redis's clock knows (1 ms)
    times = [gateway.start_s, submit.start_s, wait.start_s, wait.end_s, run.end_s, gateway.end_s]
    assert all(earlier <= later + 0.002 for earlier, later in pairwise(times)), times
    assert wait.end_s <= run.start_s <= run.events["first token"] <= run.events["last token"] <= run.end_s
    assert gateway.attributes["gen_ai.operation.name"] == "chat"
    assert gateway.attributes["gen_ai.response.id"] == request_id
    assert gateway.attributes["gen_ai.request.model"] == run.attributes["gen_ai.request.model"] == cluster.models[1]
    assert gateway.attributes["gen_ai.usage.output_tokens"] == run.attributes["gen_ai.usage.output_tokens"]
    first_token_s = run.events["first token"] - gateway.start_s
    ttft_s = float(gateway.attributes["gen_ai.server.time_to_first_token"])
    assert first_token_s <= ttft_s <= gateway.end_s - gateway.start_s
    assert run.attributes["treadle.node"] in cluster.nodes
    assert collector.problems == []
    (entry,) = [json.loads(line) for line in log_of(cluster, "gateway") if request_id in line]
    assert entry["trace_id"] == trace_id, "logs are found by the trace"


async def test_an_answer_whose_engine_dies_stays_one_trace(
    client: AsyncOpenAI, cluster: Cluster, collector: Collector
) -> None:
    trace_id = secrets.token_hex(16)
    stream = await client.completions.create(
        model=cluster.models[0],
        prompt=PROMPTS[0],
        max_tokens=LONG,
        temperature=0,
        stream=True,
        extra_body={"ignore_eos": True},
        extra_headers={"traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01"},
    )
    num_chunks = 0
    async with stream:
        async for _ in stream:
            num_chunks += 1
            if num_chunks == NUM_BEFORE:
                (busy,) = [name for name in cluster.nodes if cluster.status(name)["num_running"]]
                os.kill(cluster.status(busy)["engine_pid"], signal.SIGKILL)
    wait_for("spans of both attempts", lambda: complete_trace(collector, trace_id))
    spans = collector.trace(trace_id)
    gateway = spans[0]
    assert {span.parent_id for span in spans[1:]} == {gateway.span_id}
    names = [(span.name, span.attributes.get("treadle.attempt")) for span in spans if span.service == "treadle-node"]
    lost, *again = [span for span in spans if span.name == "node run"]
    # a node that other work slows down may have to hand it over in the midst of its second attempt, its KV with it
    # where that is cheaper than to compute it again: then each run but the first begins with a transfer
    assert again
    transfers = [name for name in names if name[0] == "kv transfer"]
    assert set(transfers) <= {("kv transfer", 1)}
    assert len(transfers) < len(again)
    runs = [name for name in names if name[0] != "kv transfer"]
    assert runs == [("queue wait", 0), ("node run", 0), *[("queue wait", 1), ("node run", 1)] * len(again)]
    assert lost.attributes["treadle.aborted"] is True
    assert lost.end_s <= gateway.events["resubmitted"] <= again[0].start_s
    assert set(lost.events) == {"first token"}
    assert "first token" in again[0].events
    assert "last token" in again[-1].events
    assert sum(span.name == "queue-manager submit" for span in spans) == 2
    await asyncio.to_thread(wait_for, "a new engine", lambda: cluster.get(busy, "/readyz")[0] == 200)


def complete_trace(collector: Collector, trace_id: str) -> bool:
    """A gateway's span ends last, and a run with a last token is the last of its kind; exporters go their own pace."""
    spans = collector.trace(trace_id)
    has_end = any("last token" in span.events for span in spans)
    return has_end and {"treadle-gateway", "treadle-queue-manager"} <= {span.service for span in spans}


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
