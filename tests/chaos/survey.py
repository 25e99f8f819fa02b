"""What a cluster without work still holds, and where its secrets may have gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psutil

from shared.bus import streams
from tests.chaos.asks import MARKER
from tests.chaos.checker.agreement import KEYS
from tests.chaos.checker.secrecy import search
from tests.chaos.cluster import Cluster
from tests.chaos.history import Leftover, Resources, Secret
from tests.chaos.members import API_KEY

SECRETS = {"an API key": API_KEY, "a prompt": MARKER}
_LOGS = (streams.QUEUE, streams.SCHEDULER, streams.KV, streams.DEAD_LETTER)
"""Grow until their next snapshot, or for ever up to a bound; no leak."""
_OF_REQUESTS = ("treadle:req:*", "treadle:group:*", "treadle:image:*")
_IDLE = ("num_running", "num_waiting")


async def leftovers(cluster: Cluster, at_s: float) -> list[Leftover]:
    """Everything that belongs to some request."""
    found = [Leftover(at_s=at_s, where=where, what=what) async for where, what in _beliefs(cluster)]
    return found + [Leftover(at_s=at_s, where=KEYS, what=what) async for what in _keys(cluster)]


async def _beliefs(cluster: Cluster) -> AsyncIterator[tuple[str, str]]:
    for gateway in cluster.of("gateway"):
        if (await _status(cluster, gateway.name)).get("inflight") != 0:
            yield gateway.name, "requests in flight"
    queue = await _led(cluster, "queue-manager")
    if queue.get("num_requests") != 0:
        yield "queue-manager", f"{queue.get('num_requests')} requests: {json.dumps(queue.get('groups'))[:600]}"
    memory = (await _led(cluster, "kv-manager")).get("nodes", {})
    for node in cluster.of("node"):
        status = await _status(cluster, node.name)
        if any(status.get(name) != 0 for name in _IDLE):
            yield node.name, str({name: status.get(name) for name in _IDLE})
        if status.get("loading"):  # its memory has more than the model
            yield node.name, f"loads {status['loading']}"
        if status.get("num_free_blocks") != status.get("num_blocks"):
            yield node.name, f"{status.get('num_free_blocks')} of {status.get('num_blocks')} blocks free"
        if node.name not in memory or memory[node.name]["num_used_blocks"]:
            yield "kv-manager", f"{node.name}: {memory.get(node.name)}"
    async for key in cluster.server.client.scan_iter("treadle:group:*", count=1000):
        groups: Any = await cluster.server.client.xinfo_groups(key)
        for group in groups:
            if group["pending"]:
                yield "pending list", f"{key.decode()}: {group['pending']} entries"


async def _keys(cluster: Cluster) -> AsyncIterator[str]:
    client = cluster.server.client
    for pattern in _OF_REQUESTS:
        keys = [key.decode() async for key in client.scan_iter(pattern, count=1000)]
        if keys:
            yield f"{len(keys)} of {pattern}, as {keys[0]}"
    tokens = [key.decode() async for key in client.scan_iter("treadle:tokens:*", count=1000)]
    if len(tokens) > len(cluster.of("gateway")):
        yield f"token streams: {tokens}"


async def _status(cluster: Cluster, name: str) -> dict[str, Any]:
    code, text = await cluster.get(cluster.members[name], "/status")
    status: dict[str, Any] = json.loads(text) if code == 200 else {}
    return status


async def _led(cluster: Cluster, service: str) -> dict[str, Any]:
    """Status of a service as its leader has it; empty where there is none."""
    statuses = [await _status(cluster, member.name) for member in cluster.of(service)]
    return next((status for status in statuses if status), {})


async def resources(cluster: Cluster, when: str, at_s: float) -> Resources:
    """Memory, descriptors and keys now."""
    found = Resources(at_s=at_s, when=when)
    for name, process in _processes(cluster):
        found.memory_bytes[name] = process.memory_info().rss
        found.descriptors[name] = process.num_fds()
    client = cluster.server.client
    found.keys = sorted([key.decode() async for key in client.scan_iter("treadle:*", count=1000)])
    grown = [*_LOGS, *(key for key in found.keys if key.startswith(("treadle:state:", "treadle:node:")))]
    # token streams and node inboxes keep some hundred entries until they are trimmed
    grown += [key for key in found.keys if key.startswith("treadle:tokens:")]
    sizes = await asyncio.gather(*(client.memory_usage(key, samples=0) for key in grown))
    dataset = int((await client.info("memory"))["used_memory_dataset"])
    found.redis_bytes = dataset - sum(size or 0 for size in sizes)
    return found


def _processes(cluster: Cluster) -> Iterator[tuple[str, psutil.Process]]:
    for member in cluster.members.values():
        if member.pid is not None:
            yield member.name, psutil.Process(member.pid)
            for child in member.children()[:1]:
                yield f"{member.name}/engine", child


async def secrets(cluster: Cluster) -> list[Secret]:
    """Where one of the secrets was found."""
    found: list[Secret] = []
    for log in sorted((cluster.folder / "logs").glob("*.log")):
        found += search(f"the log of {log.stem}", log.read_text(errors="replace"), SECRETS)
    for member in cluster.members.values():
        for path in ("/metrics", "/status"):
            _, text = await cluster.get(member, path)
            found += search(f"{path} of {member.name}", text, SECRETS)
    letters: Any = await cluster.server.client.xrange(streams.DEAD_LETTER)
    for entry_id, fields in letters:
        found += search(f"dead letter {entry_id.decode()}", repr(fields), SECRETS)
    return found
