"""Which node took which request, in which order: read from the queue manager's log while a cluster runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

from redis import Redis

from shared import streams
from shared.codec import FIELD, decode
from shared.messages import Evicted, Heartbeat, Pulled

POLL_MS = 100


@dataclass(frozen=True)
class Start:
    """A node takes a request, for the first time or again."""

    time_s: float
    """On the cluster's clock."""
    node: str
    request_id: str


class DecisionLog:
    """Follows the log beside the queue manager; it is trimmed, so it has to be read as it grows."""

    def __init__(self) -> None:
        self.starts: list[Start] = []
        self.num_evicted = 0
        self.beats: dict[str, Heartbeat] = {}
        """The last of each node: what its steps cost, as it has learnt."""

    @contextmanager
    def following(self, redis_url: str) -> Iterator[None]:
        """Read from now on, until the end of the block."""
        stop = Event()
        redis = Redis.from_url(redis_url, protocol=2)
        thread = Thread(target=self._follow, args=(redis, stop))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            redis.close()

    def _follow(self, redis: Redis, stop: Event) -> None:
        places = {streams.QUEUE: b"$", streams.SCHEDULER: b"$"}
        while not stop.is_set():
            for stream, entries in redis.xread(places, block=POLL_MS) or []:
                for entry_id, fields in entries:
                    places[stream.decode()] = entry_id
                    self._note(decode(fields[FIELD]), int(entry_id.split(b"-")[0]) / 1000)

    def _note(self, message: object, time_s: float) -> None:
        match message:
            case Pulled(node=node, requests=requests):
                self.starts += [Start(time_s, node, one.request_id) for one in requests]
            case Evicted(requests=requests):
                self.num_evicted += len(requests)
            case Heartbeat(node=node):
                self.beats[node] = message
