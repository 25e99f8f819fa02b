"""What happened in one live run: what its clients saw, every message between its services, every step of its nodes.

Kept in a folder, so that a run that took a quiet machine can be looked at again without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, cast

import msgspec
from live_client import Played
from redis import Redis

from gpu_node.engine.process.step_file import StepLine, read_steps
from shared.bus import streams
from shared.messages.codec import FIELD, decode, decode_payload
from shared.messages.messages import AnyMessage
from shared.messages.nodes.nodes import Heartbeat
from shared.messages.nodes.placement import PlanRequest, Solved
from shared.messages.requests.requests import Evicted, Pulled, Submit
from shared.service.log.cluster_clock import id_time

POLL_MS = 100
RUN_FILE = "run.msgpack"


@dataclass(frozen=True)
class Heard:
    """One message."""

    time_s: float
    """On the cluster's clock."""
    stream: str
    data: bytes

    @property
    def message(self) -> AnyMessage:
        """Decoded."""
        return decode(self.data)


@dataclass(frozen=True)
class Start:
    """A node takes a request, for the first time or again."""

    time_s: float
    node: str
    request_id: str


@dataclass
class Recording:
    """One run."""

    config: dict[str, Any]
    """Of its cluster."""
    warm_up: Played = field(default_factory=lambda: Played(0.0, []))
    trace: Played = field(default_factory=lambda: Played(0.0, []))
    heard: list[Heard] = field(default_factory=list)
    prompts: dict[str, list[int]] = field(default_factory=dict)
    """By request, its tokens."""
    steps: dict[str, list[StepLine]] = field(default_factory=dict)
    """By node, in their order."""

    def save(self, folder: Path) -> None:
        """As one file; the folder is made."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / RUN_FILE).write_bytes(msgspec.msgpack.encode(self))

    @staticmethod
    def load(folder: Path) -> Recording:
        """What `save` has written."""
        return msgspec.msgpack.decode((folder / RUN_FILE).read_bytes(), type=Recording)

    @contextmanager
    def listening(self, redis_url: str) -> Iterator[None]:
        """Hear all messages until the end of the block, also those that are there at its beginning.

        Streams are trimmed, so they have to be read as they grow.
        """
        stop = Event()
        redis = Redis.from_url(redis_url, protocol=2)
        nodes = [streams.node_inbox(node["name"]) for node in self.config["nodes"]]
        tokens = [name.decode() for name in redis.scan_iter(streams.tokens("*"))]
        thread = Thread(target=self._listen, args=(redis, [streams.QUEUE, streams.SCHEDULER, *nodes, *tokens], stop))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            redis.close()

    def _listen(self, redis: Redis, names: list[str], stop: Event) -> None:
        places: dict[Any, Any] = dict.fromkeys(names, b"0")
        while not stop.is_set():
            answer = redis.xread(places, block=POLL_MS) or []
            for stream, entries in cast("list[tuple[bytes, list[tuple[bytes, dict[bytes, bytes]]]]]", answer):
                for entry_id, fields in entries:
                    places[stream.decode()] = entry_id
                    self._hear(redis, Heard(id_time(entry_id), stream.decode(), fields[FIELD]))

    def _hear(self, redis: Redis, heard: Heard) -> None:
        self.heard.append(heard)
        message = heard.message
        if isinstance(message, Submit):
            data: Any = redis.get(streams.payload(message.request_id))
            if data is not None:  # else its client has gone already
                self.prompts[message.request_id] = decode_payload(data).prompt_token_ids

    def read_steps(self, folder: Path) -> None:
        """Take in the files that the nodes wrote (`gpu_node.engine.process.step_file`)."""
        for file in sorted(folder.glob("*.jsonl")):
            self.steps[file.stem] = read_steps(file.read_bytes().splitlines())

    # --- what is asked of it ------------------------------------------------------------------------------------------

    @property
    def starts(self) -> list[Start]:
        """Who took which request when, since the trace began."""
        return [
            Start(heard.time_s, message.node, one.request_id)
            for heard, message in self._since_began()
            if isinstance(message, Pulled)
            for one in message.requests
        ]

    @property
    def num_evicted(self) -> int:
        """Requests that gave way, since the trace began."""
        return sum(len(message.requests) for _, message in self._since_began() if isinstance(message, Evicted))

    @property
    def beats(self) -> list[Heartbeat]:
        """Of all nodes, in their order."""
        return [heard.message for heard in self.heard if isinstance(heard.message, Heartbeat)]

    @property
    def queued_s(self) -> dict[str, float]:
        """When each request came to the queue first, on the cluster's clock."""
        times_s: dict[str, float] = {}
        for heard in self.heard:
            message = heard.message
            if isinstance(message, Submit):
                times_s.setdefault(message.request_id, heard.time_s)
        return times_s

    @property
    def plans(self) -> list[tuple[int, float]]:
        """Groups of each question for a plan since the trace began, and the seconds until it was answered."""
        asked: dict[int, tuple[int, float]] = {}
        answered: list[tuple[int, float]] = []
        for heard, message in self._since_began():
            if isinstance(message, PlanRequest):
                asked[message.version] = len(message.groups), heard.time_s
            elif isinstance(message, Solved) and message.plan.version in asked:
                num_groups, asked_s = asked.pop(message.plan.version)
                answered.append((num_groups, heard.time_s - asked_s))
        return answered

    def _since_began(self) -> Iterator[tuple[Heard, AnyMessage]]:
        return ((heard, heard.message) for heard in self.heard if heard.time_s >= self.trace.began_s)
