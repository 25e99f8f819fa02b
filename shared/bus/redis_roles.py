"""Who may do what in Redis: a user for each kind of process, with its keys and its commands and no others.

The one source of the users that the chart makes, and of an ACL file for a Redis of one's own. Scripts run with the
rights of their caller: `EVALSHA` may name any of our keys, but each command of a script is checked as the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared.bus import streams

ALL = "*"  # of a family of keys: whichever request, node, gateway or service
SCRIPTS = "(+evalsha %RW~treadle:*)"

_CONNECTION = ("ping", "select", "client|setinfo", "client|setname", "info", "time", "role", "wait", "waitaof")
_TRANSACTION = ("multi", "exec", "discard", "script|load", "script|exists")
_STREAM = ("xadd", "xread", "xrange", "xrevrange", "xtrim", "xdel", "xlen", "xinfo|stream")
_KEY = ("exists", "type", "del", "unlink", "expire", "pexpire", "ttl", "pttl", "get", "set")
_OF_ALL = (*_CONNECTION, *_TRANSACTION, *_STREAM, *_KEY)
_OF_A_SERVICE = (*_OF_ALL, "incr", "hget", "hgetall", "hstrlen", "hset", "hincrby", "hdel")
_OF_A_NODE = (*_OF_ALL, "xreadgroup", "xack", "xgroup|create")
_OF_AN_OPERATOR = (
    *("ping", "select", "client|setinfo", "client|setname", "client|list", "info", "time", "role", "acl|whoami"),
    *("scan", "dbsize", "type", "exists", "ttl", "pttl", "memory|usage", "get", "strlen", "hget", "hgetall", "hlen"),
    *("hkeys", "xlen", "xrange", "xrevrange", "xread", "xinfo|stream", "xinfo|groups", "xinfo|consumers", "xpending"),
    *("slowlog|get", "slowlog|len", "latency|latest", "config|get", "bgrewriteaof", "bgsave", "lastsave"),
    *("xdel", "xtrim"),  # of dead letters, when they have been looked at
)


@dataclass(frozen=True, kw_only=True)
class Role:
    """A user of Redis. Keys may end with ``*``."""

    name: str
    commands: tuple[str, ...]
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    """To add to, to delete, to give a lifetime: not to be read."""
    owns: tuple[str, ...] = ()
    """To read and to write."""
    has_scripts: bool = True

    def acl(self, secret: str) -> str:
        """A line of an ACL file. ``secret`` is ``>PASSWORD``, ``#SHA256`` in hexadecimal, or what becomes one."""
        keys = [f"%R~{key}" for key in self.reads] + [f"%W~{key}" for key in self.writes]
        keys += [f"%RW~{key}" for key in self.owns]
        commands = [f"+{command}" for command in self.commands]
        scripts = [SCRIPTS] if self.has_scripts else []
        return " ".join(["user", self.name, "on", secret, "resetchannels", "-@all", *commands, *keys, *scripts])


def _service(name: str, inbox: str, *, writes: Sequence[str] = (), owns: Sequence[str] = ()) -> Role:
    own = (streams.state(name), streams.lease(name), streams.fence(name), streams.beat(name), streams.CLOCK)
    return Role(
        name=name,
        commands=_OF_A_SERVICE,
        writes=(*writes, streams.DEAD_LETTER),
        owns=(inbox, *own, *owns),
    )


ROLES: tuple[Role, ...] = (
    Role(
        name="gateway",
        commands=(*_OF_ALL, "zadd", "zrange", "zrem", "incrby", "strlen"),
        reads=(streams.BATCH_TOKEN,),
        writes=(streams.QUEUE, streams.KV, streams.payload(ALL), streams.pictures(ALL), streams.DEAD_LETTER),
        owns=(
            *(streams.tokens(ALL), streams.RATES),
            *(streams.response(ALL), streams.RESPONSES, streams.RESPONSES_BYTES),
        ),
    ),
    _service(
        "queue-manager",
        streams.QUEUE,
        writes=(
            *(streams.SCHEDULER, streams.node_inbox(ALL), streams.tokens(ALL), streams.group(ALL)),
            streams.payload(ALL),
        ),
    ),
    _service(
        "scheduler",
        streams.SCHEDULER,
        writes=(streams.QUEUE, streams.node_inbox(ALL)),
        owns=(streams.PROVIDER,),  # the provider lives beside the scheduler
    ),
    _service("kv-manager", streams.KV, writes=(streams.QUEUE, streams.node_inbox(ALL))),
    Role(
        name="batches",
        commands=(*_CONNECTION, "get", "set"),
        owns=(streams.BATCH_TOKEN,),
        has_scripts=False,
    ),
    Role(
        name="node",
        commands=_OF_A_NODE,
        reads=(streams.payload(ALL), streams.pictures(ALL)),
        writes=(streams.QUEUE, streams.SCHEDULER, streams.KV, streams.tokens(ALL), streams.DEAD_LETTER),
        owns=(streams.node_inbox(ALL), streams.group(ALL)),
    ),
    Role(
        name="operator",
        commands=_OF_AN_OPERATOR,
        reads=("treadle:*",),
        writes=(streams.DEAD_LETTER,),
        has_scripts=False,
    ),
)

# A client that comes without a name may ask whether Redis answers, which is what probes do, and nothing else.
DEFAULT_USER = "user default on nopass resetchannels -@all +ping"


def acl_file(secret: Callable[[str], str]) -> str:
    """An ACL file with all users; ``secret`` of a role's name is as in `Role.acl`."""
    return "\n".join([DEFAULT_USER, *(role.acl(secret(role.name)) for role in ROLES), ""])
