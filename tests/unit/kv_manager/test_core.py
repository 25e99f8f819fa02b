"""What the KV manager knows of each node's memory."""

from __future__ import annotations

from services.kv_manager.core import NODE_TIMEOUT_S, KvManagerCore
from services.kv_manager.metrics import measure
from shared.messages.memory.blocks import BlockNews
from shared.messages.memory.tiers import TierNews
from shared.messages.message import Tick
from shared.messages.nodes.nodes import Heartbeat, NodeFacts, NodeGone
from tests.samples import samples_of


def beat(
    node: str = "n0", *, epoch: str = "1", model: str = "a", num_free_blocks: int = 100, block_bytes: int = 64
) -> Heartbeat:
    return Heartbeat(
        node=node,
        epoch=epoch,
        facts=NodeFacts(device="cpu", swap_s=0.0),
        model=model,
        num_blocks=100,
        num_free_blocks=num_free_blocks,
        num_running=0,
        num_waiting=0,
        block_bytes=block_bytes,
    )


def make_core(*beats: Heartbeat) -> KvManagerCore:
    core = KvManagerCore()
    for number, message in enumerate(beats):
        assert core.handle(message, float(number)) == []
    return core


def test_memory_adds_up_over_nodes() -> None:
    core = make_core(beat("n0", num_free_blocks=90), beat("n1", num_free_blocks=70, block_bytes=128))
    seen = core.describe()
    assert seen["kv_bytes"] == 100 * 64 + 100 * 128
    assert seen["used_kv_bytes"] == 10 * 64 + 30 * 128


def test_the_peak_is_kept_while_the_model_stays() -> None:
    core = make_core(beat(num_free_blocks=30), beat(num_free_blocks=90))
    assert (core.state.nodes["n0"].num_used_blocks, core.state.nodes["n0"].peak_used_blocks) == (10, 70)


def test_another_model_or_another_epoch_has_a_peak_of_its_own() -> None:
    for successor in (beat(model="b", num_free_blocks=90), beat(epoch="2", num_free_blocks=90)):
        core = make_core(beat(num_free_blocks=30), successor)
        assert core.state.nodes["n0"].peak_used_blocks == 10


def test_a_node_that_falls_silent_has_no_memory() -> None:
    core = make_core(beat("n0"), beat("n1"))  # at 0 s and at 1 s
    assert core.wake_at == NODE_TIMEOUT_S
    for now in (2.0, 3.0, NODE_TIMEOUT_S - 1):
        core.handle(beat("n1"), now)
    core.handle(Tick(), NODE_TIMEOUT_S)
    assert list(core.state.nodes) == ["n1"]


def test_a_node_that_says_goodbye_is_forgotten_at_once() -> None:
    core = make_core(beat())
    core.handle(NodeGone(node="n0", epoch="1"), 1.0)
    assert (core.state.nodes, core.wake_at) == ({}, None)


def test_the_goodbye_of_an_earlier_epoch_changes_nothing() -> None:
    core = make_core(beat(epoch="2"))
    core.handle(NodeGone(node="n0", epoch="1"), 1.0)
    core.handle(NodeGone(node="n9", epoch="1"), 1.0)
    assert list(core.state.nodes) == ["n0"]


def test_a_restored_core_knows_the_same() -> None:
    core = make_core(beat("n0", num_free_blocks=30), beat("n1"))
    restored = KvManagerCore()
    restored.restore(core.snapshot())
    assert (restored.state, restored.wake_at) == (core.state, core.wake_at)


def test_memory_in_metrics_is_in_bytes_and_the_index_in_blocks() -> None:
    core = make_core(beat("n0", num_free_blocks=30), beat("n0", num_free_blocks=90), beat("n1", model="b"))
    news = BlockNews(node="n0", epoch="1", number=1, model="a", is_new=True, tiers=[TierNews(1, [3, 4])])
    core.handle(news, 3.0)
    assert samples_of(measure(core)) == {
        ("treadle_kv_capacity_bytes", "n0", "a"): 6400,
        ("treadle_kv_capacity_bytes", "n1", "b"): 6400,
        ("treadle_kv_used_bytes", "n0", "a"): 640,
        ("treadle_kv_used_bytes", "n1", "b"): 0,
        ("treadle_kv_peak_used_bytes", "n0", "a"): 4480,
        ("treadle_kv_peak_used_bytes", "n1", "b"): 0,
        ("treadle_kv_indexed_blocks", "n0"): 2,
        ("treadle_kv_indexed_blocks", "n1"): 0,
        ("treadle_kv_index_bytes",): 256 * 8 * 9,
        ("treadle_kv_index_gaps",): 0,
    }
