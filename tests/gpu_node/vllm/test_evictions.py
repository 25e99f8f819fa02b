"""Requests that leave a vLLM with their KV and come back with it: here, behind another model, on another node."""

from __future__ import annotations

import queue
import socket
from collections.abc import Sequence

from gpu_node.engine.measures.counts import TierCounts
from gpu_node.engine.process.connection import EngineConnection
from gpu_node.engine.process.protocol.framing import event_decoder
from gpu_node.engine.process.protocol.protocol import (
    AbortRequests,
    HandOverImages,
    Image,
    LoadModel,
    RunAttempt,
    Shutdown,
    StepReport,
    TakenOut,
    TakeOut,
)
from gpu_node.engine.requests.chunk import LOST, OutputChunk
from gpu_node.engine.requests.image import Kept
from gpu_node.vllm.serving.engine import VllmEngine
from gpu_node.vllm.serving.server import CoreTold, Inbox, VllmServer
from shared.config.config import ClusterConfig
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.config.model_specs import ModelSpecs
from shared.messages.requests.requests import Chunk
from tests.gpu_node.vllm.made import OPTIONS, Starter, kept, payload, step

ROOM = 4 * 256


def engine(starter: Starter, room: int = ROOM) -> VllmEngine:
    one = VllmEngine(starter, OPTIONS, evicted_kv_bytes=room)
    one.load_model(ModelSpec(name="m", source="none"))
    return one


def running(starter: Starter, room: int = ROOM, tokens: Sequence[int] = (8, 9), **more: object) -> VllmEngine:
    """One request of three tokens, and what it has said."""
    one = engine(starter, room)
    one.add(payload("a", max_tokens=6, **more))  # type: ignore[arg-type]
    for token in tokens:
        one.take("m", step({"0": token}, begun=["0"]))
    return one


def test_what_leaves_with_its_kv_goes_on_with_it() -> None:
    """Three tokens and two drawn: the last is not computed yet."""
    starter = Starter()
    one = running(starter)
    one.begin_eviction(["a", "unknown"])
    assert one.is_evicting
    assert starter.cores["m"].leaving == ["0"]
    one.take("m", kept("0", 4))
    assert not one.is_evicting
    assert one.evict(["a", "unknown"]) == ([], [Kept("a", 4)])
    assert one.evict(["a"]) == ([], [Kept("a", 4)]), "it is out already"
    assert one.add(payload("a", max_tokens=6)) == []
    (again,) = starter.cores["m"].running
    assert (again.core_id, list(again.token_ids), again.max_tokens) == ("1", [5, 6, 7, 8, 9], 4)
    assert again.kept is not None
    assert (again.kept.num_tokens, bytes(again.kept.content)) == (4, bytes([7]) * 256)
    assert one.take("m", step({"1": 10}, begun=["1"])) == [OutputChunk("a", 0, 2, [10])]
    counts = one.stats().counts
    assert counts.evicted == TierCounts(out_bytes=256, in_bytes=256, num_restored=1)
    assert counts.num_recomputed == 0
    one.check()


def test_a_request_of_an_adapter_goes_on_under_it() -> None:
    """Here, and on another node with its image."""
    spec = ModelSpec(name="m", source="none", adapters=(AdapterSpec("legal", "none"), AdapterSpec("rhymes", "none")))
    here, there = Starter(), Starter()
    one, other = (VllmEngine(starter, OPTIONS, evicted_kv_bytes=ROOM) for starter in (here, there))
    asked = payload("a", max_tokens=6, adapter="rhymes")
    for engine_ in (one, other):
        engine_.load_model(spec)
    one.add(asked)
    for own_id, token in (("0", 8), ("1", 9)):
        one.take("m", step({own_id: token}, begun=[own_id]))
        one.begin_eviction(["a"])
        one.take("m", kept(own_id, 3))
        one.evict(["a"])
        if token == 8:
            one.add(asked)
            assert [again.adapter for again in here.cores["m"].running] == ["rhymes"]
    (image,) = one.hand_over(["a"])
    assert other.add(asked, image.data) == []
    (again,) = there.cores["m"].running
    assert (again.adapter, list(again.token_ids), again.kept is not None) == ("rhymes", [5, 6, 7, 8, 9], True)


def test_what_is_kept_lasts_over_a_change_of_the_model() -> None:
    starter = Starter()
    one = running(starter)
    one.begin_eviction(["a"])
    one.take("m", kept("0", 4))
    one.evict(["a"])
    for name in ("b", "c", "m"):
        one.load_model(ModelSpec(name=name, source="none"))
    one.add(payload("a", max_tokens=6))
    (again,) = starter.cores["m"].running
    assert again.kept is not None


def test_without_room_nothing_is_asked_and_nothing_kept() -> None:
    starter = Starter()
    one = running(starter, room=511)
    one.begin_eviction(["a"])
    assert (one.is_evicting, starter.cores["m"].leaving) == (False, [])
    assert one.evict(["a"]) == ([], [Kept("a", 0)])
    assert starter.cores["m"].running == []
    assert one.stats().counts.evicted == TierCounts(num_refused=1)
    one.add(payload("a", max_tokens=6, attempt=1, outputs=[[8, 9]]))
    assert one.stats().counts.num_recomputed == 1


def test_what_ends_while_it_is_asked_for_is_left_out() -> None:
    one = running(Starter())
    one.begin_eviction(["a"])
    one.take("m", step({"0": 2}))  # the end of the text
    assert not one.is_evicting
    assert one.evict(["a"]) == ([], [])


def test_all_choices_are_kept_or_none() -> None:
    starter = Starter()
    for told, num_tokens in ((("0", "1"), 8), (("0",), 0)):
        one = engine(starter)
        one.add(payload("a", max_tokens=6, num_choices=2, num_candidates=2, temperature=1.0))
        own = [running.core_id for running in starter.cores["m"].running]
        one.take("m", step(dict.fromkeys(own, 9), begun=own))
        one.begin_eviction(["a"])
        for core_id in own:
            one.take("m", kept(core_id, 4 if core_id in told else 0, fill=int(core_id)))
        assert one.evict(["a"])[1] == [Kept("a", num_tokens)]
        if num_tokens:
            one.add(payload("a", max_tokens=6, num_choices=2, num_candidates=2, temperature=1.0))
            again = starter.cores["m"].running
            assert [bytes(each.kept.content) for each in again if each.kept] == [bytes(256), bytes([1]) * 256]


def test_a_newer_attempt_and_an_abort_drop_what_is_kept() -> None:
    for is_aborted in (True, False):
        starter = Starter()
        one = running(starter)
        one.begin_eviction(["a"])
        one.take("m", kept("0", 4))
        one.evict(["a"])
        if is_aborted:
            one.abort(["a"])
        one.add(payload("a", max_tokens=6, attempt=0 if is_aborted else 1, outputs=[[8, 9]]))
        (again,) = starter.cores["m"].running
        assert again.kept is None
        assert one.hand_over(["a"]) == []


def test_a_node_of_equal_format_goes_on_with_an_image_and_one_without_room_gives_it_back() -> None:
    here = running(Starter())
    here.begin_eviction(["a"])
    here.take("m", kept("0", 4))
    here.evict(["a"])
    (handed,) = here.hand_over(["a", "unknown"])
    assert here.hand_over(["a"]) == []
    there = Starter()
    engine(there).add(payload("a", max_tokens=6), handed.data)
    (again,) = there.cores["m"].running
    assert again.kept is not None
    assert list(again.token_ids) == [5, 6, 7, 8, 9]
    other = Starter()
    without_room = engine(other, room=255)
    (end,) = without_room.add(payload("a", max_tokens=6), handed.data)
    assert (end.finish_reason, end.is_last) == (LOST, True)
    assert other.cores["m"].running == []
    without_room.add(payload("a", max_tokens=6, attempt=1, outputs=[[8, 9]]))
    assert [again.kept for again in other.cores["m"].running] == [None]
    assert without_room.stats().counts.num_recomputed == 1


def test_commands_wait_until_vllm_has_told_and_steps_are_told_meanwhile() -> None:
    ours, theirs = socket.socketpair()
    inbox: Inbox = queue.Queue()
    for event in (
        [LoadModel("m"), RunAttempt(payload("a", max_tokens=6))],
        [TakeOut(["a"]), HandOverImages(["a"])],
        [AbortRequests(["a"])],
        CoreTold("m", step({"0": 8}, begun=["0"])),
        CoreTold("m", kept("0", 3)),
        [Shutdown()],
    ):
        inbox.put(event)  # type: ignore[arg-type]
    config = ClusterConfig(models=[ModelSpec(name="m", source="none")])
    with ours, theirs:
        one = VllmEngine(Starter(), OPTIONS, evicted_kv_bytes=ROOM)
        VllmServer(EngineConnection(theirs), one, inbox, ModelSpecs(config.models), "vllm-cpu", lambda: 0.0).run()
        told = event_decoder().feed(ours.recv(1 << 16))
    kinds = [type(event) for event in told[3:]]
    assert kinds == [StepReport, StepReport, StepReport, TakenOut, StepReport, Image]
    chunks = [event.chunks for event in told[3:] if isinstance(event, StepReport)]
    assert chunks == [[], [Chunk("a", 0, 0, [8])], [], []]
    (taken,) = (event for event in told if isinstance(event, TakenOut))
    assert taken.requests == [Kept("a", 3)]


def test_texts_that_leave_are_computed_again() -> None:
    """vLLM is not asked for their KV: it would give none back to them."""
    starter = Starter()
    one = VllmEngine(starter, OPTIONS, evicted_kv_bytes=ROOM)
    one.load_model(ModelSpec(name="m", source="none", task="embed"))
    one.add(payload("a", [5] * 12, 1, is_embedding=True))
    one.begin_eviction(["a"])
    assert (one.is_evicting, starter.cores["m"].leaving) == (False, [])
    assert one.evict(["a"]) == ([], [Kept("a", 0)])
    assert starter.cores["m"].running == []
    one.add(payload("a", [5] * 12, 1, is_embedding=True))
    (again,) = starter.cores["m"].running
    assert (list(again.token_ids), again.kept) == ([5] * 12, None)
    one.check()
