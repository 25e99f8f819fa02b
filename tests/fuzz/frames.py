"""Frames between an agent and its engine, in pieces as a socket gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from gpu_node.engine.border.links import LinkName
from gpu_node.engine.measures.stats import EngineStats
from gpu_node.engine.process.protocol import link_protocol, prefix_protocol, protocol
from gpu_node.engine.process.protocol.framing import FrameDecoder, ProtocolError, command_decoder, event_decoder, frame
from gpu_node.engine.requests.image import Kept
from shared.config.engines.adapters import AdapterSpec
from shared.config.engines.engine import ModelSpec
from shared.messages.memory.link_sizes import LinkSizes
from shared.messages.nodes.step_cost import StepCost
from shared.messages.prefixes.prefix_ask import PrefixAsk
from shared.messages.requests.requests import Chunk
from tests.contract.examples import PAYLOAD
from tests.contract.other_side import pack, unpack
from tests.fuzz.mutators import mutated_bytes
from tests.fuzz.target import Target, refused, rule
from tests.fuzz.trees import MSGPACK_VALUES, mutated_tree

_LENGTH_BYTES = 4
LINK = LinkName("hot-1", "cold-1")


def _commands() -> Sequence[bytes]:
    commands: list[protocol.Command] = [
        protocol.LoadModel("smol"),
        protocol.RunAttempt(PAYLOAD, protocol.ImageFile("/proc/7/fd/9", 4096)),
        protocol.RunAttempt(replace(PAYLOAD, outputs=[])),
        protocol.RunAttempt(PAYLOAD, prefix=protocol.ImageFile("/proc/7/fd/9", 4096)),
        prefix_protocol.FindPrefix("r-1", 1, "smol", "legal", [5, 70_000]),
        prefix_protocol.CopyPrefix(3, PrefixAsk("r-1", 1, "smol", "legal", "0f1e2d3c", [5, 70_000], 16)),
        protocol.TakeOut(["r-1", "r-2"]),
        protocol.HandOverImages(["r-1"]),
        protocol.AbortRequests([]),
        link_protocol.MakeLink(LINK, "smol"),
        link_protocol.ReceiveLink(LINK, LinkSizes(2, 16, 4, 2, 64, 8, 32, 32, 1024)),
        link_protocol.LendPages(LINK, 3),
        link_protocol.TakeBackPages(LINK, [7]),
        link_protocol.GrantPages(LINK, [7, 8, 9], 4096),
        link_protocol.WantPages(LINK, 1),
        link_protocol.SetRemoteRatio(LINK, 0.5),
        link_protocol.CloseLink(LINK),
        protocol.LoadModel("smol", ModelSpec("smol", "smol.gguf", adapters=(AdapterSpec("legal", "l", "0" * 64),))),
        protocol.Reset(),
        protocol.Shutdown(),
    ]
    frames = [frame(command) for command in commands]
    return [*frames, b"".join(frames)]


def _events() -> Sequence[bytes]:
    stats = EngineStats(1, 2, 100, 3, 0.25, cost=StepCost(0.01, 0.001, 0.0001, 0.00001))
    events: list[protocol.EngineEvent | protocol.EngineRefused] = [
        protocol.EngineReady("cpu"),
        protocol.EngineRefused("no memory"),
        protocol.ModelLoaded("smol", 10, 16, 4096, 128, 0.5, "host", {"smol": "device"}),
        protocol.ModelFailed("smol", "torn"),
        protocol.StepReport([Chunk("r-1", 1, 16, [5, 70_000], finish_reason="stop", is_last=True)], stats),
        protocol.TakenOut([Kept("r-1", 17)], stats),
        protocol.Image("r-1", 0, 1, protocol.ImageFile("/proc/7/fd/9", 4096)),
        protocol.ImageOpened(protocol.ImageFile("/proc/7/fd/9", 4096)),
        prefix_protocol.PrefixFound("r-1", 1, 16, 32),
        prefix_protocol.PrefixCopied(3, 7, protocol.ImageFile("/proc/7/fd/9", 4096)),
        prefix_protocol.PrefixTaken(16, is_refused=True),
        link_protocol.LinkMade(LINK, LinkSizes(2, 16, 4, 2, 64, 8, 32, 32, 1024)),
        link_protocol.LinkServed(LINK, 4096),
        link_protocol.LinkRefused(LINK, "a full /dev/shm"),
        link_protocol.PagesLent(LINK, [7, 8, 9]),
        link_protocol.PagesReturned(LINK, [7]),
        link_protocol.RemoteRequestsLost(LINK, 2),
    ]
    frames = [frame(event) for event in events]
    return [*frames, b"".join(frames)]


def _checker(make: Callable[[], FrameDecoder[Any]]) -> Callable[[bytes], bool]:
    def check(data: bytes) -> bool:
        """Whole or in pieces, the same messages come, or the same refusal; no frame is kept that is complete."""
        whole, pieces = make(), make()
        found: list[Any] = []
        in_pieces: list[Any] = []
        size = 3 + len(data) % 61
        is_refused = refused(lambda: found.extend(whole.feed(data)), ProtocolError)
        parts = [data[start : start + size] for start in range(0, len(data), size)]

        def feed_parts() -> None:
            for part in parts:
                in_pieces.extend(pieces.feed(part))

        is_refused_in_pieces = refused(feed_parts, ProtocolError)
        rule(is_refused == is_refused_in_pieces, "a stream is refused or not, however it is cut")
        if is_refused:
            return False
        rule(repr(found) == repr(in_pieces), "a stream is the same messages, however it is cut")
        rule(whole.num_buffered_bytes == pieces.num_buffered_bytes <= len(data), "only what came is kept")
        return bool(found)

    return check


def mutated_frame(data: bytes, corpus: Sequence[bytes], rng: Random) -> bytes:
    """As bytes; or the message within as a document, in a frame whose length is right."""
    if rng.random() < 0.4:
        return mutated_bytes(data, corpus, rng)
    try:
        body = pack(mutated_tree(unpack(data[_LENGTH_BYTES:]), rng, MSGPACK_VALUES))
    except (ValueError, TypeError, OverflowError):
        return mutated_bytes(data, corpus, rng)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


TARGETS = [
    Target("engine commands", _commands, _checker(command_decoder), mutated_frame, is_guided=False, share=25),
    Target("engine events", _events, _checker(event_decoder), mutated_frame, is_guided=False, share=25),
]
