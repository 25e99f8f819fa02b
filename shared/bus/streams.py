"""Every Redis key of Treadle, and the reason for its limit. No other module spells one.

All keys start with ``treadle:``. One cluster owns one Redis database: two clusters on one server use two databases.
"""

from __future__ import annotations

from typing import Final

# Inboxes of services: each is its service's log, trimmed up to the last snapshot (see `shared.service.driver`), so
# their length is bounded by `Driver`'s snapshots plus what arrives while the service is down.
QUEUE: Final = "treadle:queue"
SCHEDULER: Final = "treadle:scheduler"
KV: Final = "treadle:kv"

# While the scheduler or the KV manager is down, heartbeats go on: old ones may be lost, since a newer one says the
# same, and a plan that was asked for meanwhile is asked for again: an hour of twenty nodes, in 50 MB. The queue
# manager's inbox has no such bound: what stands in it are accepted requests, bounded by what the gateways admit.
MAX_SERVICE_LOG: Final = 100_000

# The KV manager's, where nodes tell of thousands of blocks in an entry, and gateways ask: 80 MB at most if it is away.
# It misses the numbers of what was lost, and asks its nodes again; of questions nothing is missed, since no asker waits
# for the answer to an old one.
MAX_KV_LOG: Final = 4_000

# What the node provider shall do. It reads from now on, and each wish is repeated: only the last of each pool matters.
PROVIDER: Final = "treadle:provider"
MAX_PROVIDER_INBOX: Final = 10_000

# By how much services read Redis's clock otherwise since it has stepped, in seconds; absent while it never has.
CLOCK: Final = "treadle:clock"

# The secret by which gateways and the batch service know each other, made by the service when it starts: a process that
# can read it could submit requests itself.
BATCH_TOKEN: Final = "treadle:batches:token"  # noqa: S105 (its place)

# What could not be decoded, kept for a person to look at: bounded, oldest lost first; it is evidence and not work.
DEAD_LETTER: Final = "treadle:deadletter"
MAX_DEAD_LETTERS: Final = 10_000
MAX_LETTER_BYTES: Final = 4_096  # of each field: where it begins is seen, and all of them fit into 40 MB

# A node drops what it has read, so its inbox only grows while the node is down; then nothing in it matters, because a
# node that comes back begins a new epoch. The bound is far above what a live node can be behind.
MAX_NODE_INBOX: Final = 10_000

# A gateway trims its tokens up to what it has read. A replica that has fallen this many steps behind has been declared
# dead long before; should it not be, the gap in the indexes makes it ask again, so nothing is lost silently.
MAX_TOKEN_BACKLOG: Final = 50_000

# A payload follows its request: its gateway deletes it, and puts off its end while the request is in flight. Should the
# gateway die before it is dropped, it is gone within the hour. Redis's clock may step by ten minutes either way: by
# then it has another forty.
PAYLOAD_TTL_S: Final = 3_600
PAYLOAD_REFRESH_S: Final = 600.0

# A bucket of a key's rate outlives the moment when it is full by so long: a gateway that has an advance of it tells
# before. One in deep debt is kept for a day at most.
RATES: Final = "treadle:rate:*"
RATE_SPARE_S: Final = 60
MAX_RATE_TTL_S: Final = 86_400

# Answers of the Responses API that clients go on from, where `gateway.keep_responses_s` says so: which there are, by
# their ends (sorted set of "id:bytes"), and how many bytes they have; `scripts.KEEP_RESPONSE` bounds both.
RESPONSES: Final = "treadle:responses"
RESPONSES_BYTES: Final = "treadle:responses_bytes"

# Consumer group on every group stream; consumers are nodes under their epoch. Its pending list is the ledger of who is
# working on what.
CONSUMER_GROUP: Final = "nodes"


def node_inbox(node: str) -> str:
    """What the queue manager and the scheduler say to a node."""
    return f"treadle:node:{node}"


def tokens(gateway: str) -> str:
    """New tokens and resubmissions for one gateway replica. Made by the gateway; no other process creates it."""
    return f"treadle:tokens:{gateway}"


def group(gid: str) -> str:
    """Requests of one group, in order. Entries leave as they are acknowledged; dropped with the group."""
    return f"treadle:group:{gid}"


def payload(request_id: str) -> str:
    """Token ids and sampling parameters of a request; owned by its gateway."""
    return f"treadle:req:{request_id}"


def pictures(request_id: str) -> str:
    """Files of the images of a request, in their order (`shared.messages.codec`); owned by its gateway.

    It lives as the payload does, and apart from it: what only reads prompts does not read megabytes.
    """
    return f"treadle:pictures:{request_id}"


def rate(what: str, per_minute: int, key_id: str) -> str:
    """What an API key has left of its ``requests`` or ``tokens`` a minute, for all gateways; see `scripts.TELL_RATES`.

    The key is named by its digest. Another limit is another bucket, so gateways that have read the keys again and those
    that have not do not mix theirs up.
    """
    return f"treadle:rate:{what}:{per_minute}:{key_id}"


def response(response_id: str) -> str:
    """An answer that is kept, with the conversation that led to it; gone when its time is over, or for a newer one."""
    return f"treadle:response:{response_id}"


def state(service: str) -> str:
    """Hash: a service's last snapshot (``id``, ``state``, ``clock``), the committed id (``committed``), and marks.

    Marks of entries since that snapshot: ``aside:ID``, left out at replay; ``clock:ID``, from where on Redis's clock is
    read otherwise (`shared.service.log.cluster_clock`).
    """
    return f"treadle:state:{service}"


def lease(service: str) -> str:
    """Who is the active instance of a service: ``instance#fencing-token``."""
    return f"treadle:lease:{service}"


def beat(service: str) -> str:
    """Hash of the active instance's signs of life: how many (``n``), how long to wait for the next (``hold_ms``)."""
    return f"treadle:beat:{service}"


def fence(service: str) -> str:
    """Counter that gives each leadership its fencing token."""
    return f"treadle:fence:{service}"
