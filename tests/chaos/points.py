"""Named points of the protocol: which of a process's commands is a commit, a pull, a publish, a snapshot …"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from shared.bus import scripts, streams

SCRIPTS = {
    hashlib.sha1(text.encode()).hexdigest(): name.lower()
    for name, text in vars(scripts).items()
    if name.isupper() and isinstance(text, str)
}
"""Names of the scripts by the digests that EVALSHA says."""

# What a transaction is named by: the first of these keys that one of its commands writes.
_OF_TRANSACTIONS = {
    (b"SET", b"treadle:req:"): "submit",
    (b"DEL", b"treadle:req:"): "cancel",
    (b"XADD", b"treadle:tokens:"): "publish",
    (b"XACK", b"treadle:group:"): "publish",
}
_OF_COMMANDS = {b"SET": "store", b"DEL": "finish", b"XREAD": "read"}
_HEARD_BY = {stream.encode() for stream in (streams.QUEUE, streams.SCHEDULER, streams.KV)}


@dataclass
class Conversation:
    """What one connection has said so far, as far as it matters for the names of what comes."""

    inside: list[list[bytes]] | None = None
    """Commands of the transaction that is open."""
    names: list[str] = field(default_factory=list)

    def name(self, command: list[bytes]) -> str:
        """The point that a command is; ``""`` for one without a name of interest."""
        verb = command[0].upper()
        if verb == b"MULTI":
            self.inside = []
            return ""
        if verb == b"EXEC":
            inside, self.inside = self.inside or [], None
            return of_transaction(inside)
        if self.inside is not None:
            self.inside.append(command)
            return ""
        if verb in (b"EVALSHA", b"EVAL"):
            sha = command[1].decode() if verb == b"EVALSHA" else hashlib.sha1(command[1]).hexdigest()
            name = SCRIPTS.get(sha, "")
            return of_keys(command) if name == "write" else name
        if verb == b"XADD":
            return "beat" if command[1] in _HEARD_BY else "add"
        return _OF_COMMANDS.get(verb, "")


def of_transaction(inside: list[list[bytes]]) -> str:
    """Name of a transaction."""
    for command in inside:
        for (verb, prefix), name in _OF_TRANSACTIONS.items():
            if command[0].upper() == verb and len(command) > 1 and command[1].startswith(prefix):
                return name
    return "publish" if any(command[0].upper() == b"XADD" for command in inside) else ""


def of_keys(command: list[bytes]) -> str:
    """Name of a run of the script that does several writes: ``EVALSHA sha numkeys key … op data option …``."""
    num_keys = int(command[2])
    keys, ops = command[3 : 3 + num_keys], command[3 + num_keys :: 3]
    writes = set(zip(ops, (key.rpartition(b":")[0] for key in keys), strict=False))
    if (b"set", b"treadle:req") in writes:
        return "submit"
    if (b"delete", b"treadle:req") in writes:
        return "cancel" if b"treadle:queue" in keys else "finish"
    if any(prefix in (b"treadle:tokens", b"treadle:group") for _, prefix in writes):
        return "publish"
    return "beat" if _HEARD_BY & set(keys) else ""
