"""Frames between agent and engine: whole through any cut of the stream, and nothing else accepted."""

from __future__ import annotations

import msgpack  # type: ignore[import-untyped]
import pytest

from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.process.protocol.framing import (
    MAX_FRAME_BYTES,
    ProtocolError,
    command_decoder,
    event_decoder,
    frame,
)
from gpu_node.engine.process.protocol.protocol import (
    AbortRequests,
    Command,
    EngineEvent,
    LoadModel,
    Reset,
    RunAttempt,
    Shutdown,
    StepReport,
)
from gpu_node.engine.requests.chunk import OutputChunk as EngineChunk
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.config.engines.sampling import SamplingDefaults
from shared.config.engines.scoring import ScoreOptions
from shared.config.engines.speculation import SpeculationOptions
from shared.messages.requests.payload import Output, Payload, Sampling
from shared.messages.requests.requests import Chunk
from shared.messages.requests.token_logprob import TokenLogprob

PAYLOAD = Payload("r", 1, "g", "m", [1, 2], Sampling(max_tokens=3), [Output([4])])
STATS = EngineStats(1, 2, 3, 4, 5.0, 6)
SPEC = ModelSpec(
    name="m",
    source="m.gguf",
    max_model_len=64,
    score=ScoreOptions(prompt="{query} {document}"),
    sampling=SamplingDefaults(temperature=0.5),
    aliases=("n",),
    adapters=(AdapterSpec(name="x", source="x", sha256="0" * 64),),
    speculation=SpeculationOptions("ngram"),
)
COMMANDS: list[Command] = [
    LoadModel("m"),
    LoadModel("m", SPEC),
    RunAttempt(PAYLOAD),
    AbortRequests(["r"]),
    Reset(),
    Shutdown(),
]


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_messages_survive_any_cut_of_the_stream(size: int) -> None:
    data = b"".join(frame(command) for command in COMMANDS)
    decoder = command_decoder()
    received = [command for at in range(0, len(data), size) for command in decoder.feed(data[at : at + size])]
    assert received == COMMANDS
    assert decoder.num_buffered_bytes == 0


def test_a_message_says_of_a_chunk_what_the_engine_says() -> None:
    score = TokenLogprob(-0.5, [(7, -0.5)])
    said = EngineChunk("r", 1, 2, [7], "stop", "why", choice=3, logprobs=[score], is_last=True, cached_tokens=16)
    told = Chunk("r", 1, 2, [7], "stop", "why", choice=3, logprobs=[score], is_last=True, cached_tokens=16)
    assert StepReport.of([said], STATS) == StepReport([told], STATS)


def test_the_bytes_of_a_frame() -> None:
    event: EngineEvent = StepReport([Chunk("r", 0, 2, [7])], STATS)
    data = frame(event)
    moved = {"out_bytes": 0, "in_bytes": 0, "num_restored": 0, "num_refused": 0}
    kept = [
        "host_tokens",
        "store_tokens",
        "num_lost_blocks",
        "num_written",
        "num_read",
        "num_unwritten",
        "num_failed",
        "num_damaged",
        "num_late",
    ]
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert msgpack.unpackb(data[4:]) == {
        "type": "stepreport",
        "chunks": [{"request_id": "r", "attempt": 0, "index": 2, "token_ids": [7]}],
        "stats": {
            "num_running": 1,
            "num_waiting": 2,
            "num_free_blocks": 3,
            "num_admittable": 4,
            "step_s": 5.0,
            "num_received": 6,
            "kv_bytes_per_s": 0.0,
            "cost": None,
            "decode": None,
            "swapped_kv_bytes": 0,
            "evicted_kv_bytes": 0,
            "host_kept_bytes": 0,
            "store_bytes": 0,
            "page_bytes": 0,
            "num_spare_pages": 0,
            "num_missing_pages": 0,
            "busy_s": 0.0,
            "served_s": 0.0,
            "waited_s": 0.0,
            "counts": {
                "num_preemptions": 0,
                "prefix_queried_tokens": 0,
                "prefix_cached_tokens": 0,
                "first_queried_tokens": 0,
                "first_cached_tokens": 0,
                "restored_tokens": 0,
                "num_recomputed": 0,
                "swapped": moved,
                "evicted": moved,
                "num_piped": 0,
                "num_small": 0,
                "num_unknown": 0,
                "num_served_tasks": 0,
                "num_lost_remote": 0,
                "num_draft_tokens": 0,
                "num_accepted_tokens": 0,
                "num_structured_drafts": 0,
                "num_structured_accepted": 0,
                "kept": dict.fromkeys(kept, 0),
            },
            "num_remote_blocks": 0,
        },
    }
    assert event_decoder().feed(data) == [event]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\xc1", "does not decode"),
        (msgpack.packb({"type": "loadmodel"}), "does not decode.*model"),
        (msgpack.packb({"type": "dance"}), "does not decode.*dance"),
        (b"\x82\xa4type\xa9loadmodel\xa5model\xa1\xff", "does not decode: 'utf-8' codec"),
        (b"\x82\xa4type\xa5reset\xa1x" + b"\x91" * 100_000, "does not decode: maximum recursion depth"),
    ],
)
def test_what_does_not_decode_is_fatal(body: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        command_decoder().feed(len(body).to_bytes(4, "big") + body)


def test_a_frame_has_a_largest_size_at_both_ends() -> None:
    with pytest.raises(ProtocolError, match="the limit is"):
        command_decoder().feed((MAX_FRAME_BYTES + 1).to_bytes(4, "big"))
    with pytest.raises(ProtocolError, match="a frame holds"):
        frame(LoadModel("m" * MAX_FRAME_BYTES))
