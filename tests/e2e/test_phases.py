"""A node that prefills and one that decodes: requests change between them with their KV, and no token changes.

The model is a small one: what it answers depends on all before it, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.alone import answers_alone
from tests.e2e.cluster import Cluster, wait_for
from tests.e2e.collector import Collector, collecting
from tests.e2e.traffic import PROMPTS, Answer, Ask, complete, openai_client, stream, underway
from tests.e2e.wide_model import write_wide_model

NUM_TOKENS = 300  # about a second of work
ASKS = [Ask("small", prompt, NUM_TOKENS) for prompt in PROMPTS]
LONG_ASKS = [replace(ask, max_tokens=3 * NUM_TOKENS) for ask in ASKS]  # worth a load
MAX_ROUNDS = 20
NUM_KV_HEADS = 4
Weights = dict[str, str | int]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Weights:
    source = write_wide_model(tmp_path_factory.mktemp("weights") / "wide.gguf", NUM_KV_HEADS)
    return {"source": str(source), "max_model_len": 1024}


@contextmanager
def started(
    folder: Path, weights: Weights, models: tuple[str, ...], collector: Collector | None = None
) -> Iterator[Cluster]:
    """A cluster with a node for each phase, called as they are; ``models`` are names of the same weights."""
    cluster = Cluster.create(
        folder,
        models=[{"name": name, **weights} for name in models],
        nodes=[{"name": one, "phases": one} for one in ("prefill", "decode")],
        engine={"max_num_seqs": len(ASKS), "kv_cache_bytes": 128 << 20},
        **({"otlp_endpoint": collector.url} if collector is not None else {}),
    )
    cluster.environment["OTEL_BSP_SCHEDULE_DELAY"] = "200"  # ms between two exports of spans
    with cluster.running():
        yield cluster


@pytest.fixture(scope="module")
def shared_collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="module")
def shared_phases(
    tmp_path_factory: pytest.TempPathFactory, weights: Weights, shared_collector: Collector
) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("phases"), weights, ("small",), shared_collector) as cluster:
        yield cluster


@pytest.fixture
def two_phases(shared_phases: Cluster) -> Cluster:
    """Both nodes live and have nothing to do, whatever was done to one of them before."""
    shared_phases.up()
    shared_phases.wait_idle()
    return shared_phases


@pytest.fixture(scope="module")
def expected(weights: Weights) -> list[str]:
    """What `ASKS` are answered by an engine that does all of it."""
    return answers_alone({"name": "small", **weights}, ASKS)


METRICS: dict[str, tuple[str, dict[str, str]]] = {
    "computed again": ("treadle_resumed_requests_total", {"tier": "none"}),
    "went on": ("treadle_resumed_requests_total", {"tier": "evicted"}),
    "moved bytes": ("treadle_kv_transfer_bytes_total", {"direction": "in"}),
    "failures": ("treadle_kv_transfer_failures_total", {}),
}


def counted(cluster: Cluster) -> dict[str, float]:
    """By the node that decodes, so far."""
    return {name: cluster.metric("decode", metric, **labels) for name, (metric, labels) in METRICS.items()}


def drawn(cluster: Cluster) -> dict[str, float]:
    """Tokens by node, so far."""
    return {node: cluster.metric(node, "treadle_node_output_tokens_total") for node in ("prefill", "decode")}


async def test_prompts_are_computed_at_one_node_and_tokens_drawn_at_the_other(
    two_phases: Cluster, shared_collector: Collector, expected: list[str]
) -> None:
    num_spans, before, drawn_before = len(shared_collector.spans), counted(two_phases), drawn(two_phases)
    async with openai_client(two_phases) as client:
        answers = await complete(client, ASKS)
        ended_at_once = await complete(client, [Ask("small", PROMPTS[0], 1)])
    assert [answer.text for answer in answers] == expected
    assert [answer.num_tokens for answer in ended_at_once] == [1], "it had no reason to move"
    two_phases.wait_idle()
    since = {name: value - before[name] for name, value in counted(two_phases).items()}
    assert since["computed again"] == 0
    assert since["went on"] >= len(ASKS), "and more where a slow machine has some give way there"
    assert since["moved bytes"] > 0
    assert since["failures"] == 0
    at_each = {name: total - drawn_before[name] for name, total in drawn(two_phases).items()}
    assert at_each["decode"] > 0, "how many depends on how soon a busy machine lets requests move"
    assert sum(at_each.values()) == len(ASKS) * NUM_TOKENS + 1, "no token is drawn at both"

    def nodes_of_moved() -> list[list[str | int | float]]:
        """Those where each request ran that moved, in the order of the runs."""
        transfers = [span for span in shared_collector.spans[num_spans:] if span.name == "kv transfer"]
        moved = {transfer.trace_id for transfer in transfers}
        traces = [shared_collector.trace(trace_id) for trace_id in moved]
        return [[span.attributes["treadle.node"] for span in trace if span.name == "node run"] for trace in traces]

    wait_for("all spans", lambda: sum(len(nodes) > 1 for nodes in nodes_of_moved()) >= len(ASKS))
    assert len(nodes_of_moved()) == len(ASKS)
    for nodes in nodes_of_moved():
        assert nodes[0] == "prefill"
        assert set(nodes[1:]) == {"decode"}, "behind the move, in one trace"


@pytest.mark.parametrize("dying", ["prefill", "decode"])
async def test_either_node_dies_in_the_middle_of_answers_and_the_other_one_does_all_of_it(
    two_phases: Cluster, expected: list[str], dying: str
) -> None:
    async with openai_client(two_phases) as client:
        answers = [Answer() for _ in ASKS]
        tasks = [asyncio.create_task(stream(client, *pair)) for pair in zip(ASKS, answers, strict=True)]
        await underway(answers, tasks)
        two_phases.kill(dying)
        late = await complete(client, ASKS[:2])
        await asyncio.gather(*tasks)
    assert [answer.text for answer in answers] == expected
    assert [answer.text for answer in late] == expected[:2]
    assert two_phases.missing() == [dying]


async def test_the_node_that_decodes_takes_the_model_that_is_asked_for(tmp_path: Path, weights: Weights) -> None:
    """Each node has room for one model; both begin with the first.

    What they load afterwards, for those who are expected to come, is another matter.
    """
    expected = answers_alone({"name": "small", **weights}, LONG_ASKS)
    with started(tmp_path, weights, ("small", "other")) as cluster:
        for model in ("small", "other", "small"):
            before = num_resumed(cluster)
            for _ in range(MAX_ROUNDS):  # the first of a model may be over before the other node has loaded it
                async with openai_client(cluster) as client:
                    answers = await complete(client, [replace(ask, model=model) for ask in LONG_ASKS])
                assert [answer.text for answer in answers] == expected
                cluster.wait_idle()
                if num_resumed(cluster) > before:
                    break
            assert num_resumed(cluster) > before, "it has gone on with some of these, for which it has loaded the model"


def num_resumed(cluster: Cluster) -> float:
    """Requests that the node which decodes has gone on with, with their KV."""
    return cluster.metric("decode", "treadle_resumed_requests_total", tier="evicted")
