"""What happened in a run, as records that a checker can judge without the cluster. Times: seconds since it began."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec


class Ask(msgspec.Struct, frozen=True):
    """What is asked for. Asks with the same ``key`` have the same answer, or one is the beginning of the other."""

    key: str
    model: str
    prompt: str
    max_tokens: int
    temperature: float
    seed: int
    streams: bool = True
    wants_tokens: bool = True
    """The answer names each token (by ``logprobs``); else only its text is seen."""
    cancel_after: int | None = None
    """The client leaves after so many events, or so many tenths of a second where it does not stream."""


class Heard(msgspec.Struct, frozen=True):
    """One event of an answer."""

    at_s: float
    text: str = ""
    tokens: list[str] = []
    finish_reason: str | None = None
    error: str | None = None
    num_tokens: int | None = None
    """As the server counts them, at the end."""
    is_done: bool = False
    """``[DONE]``."""


class Request(msgspec.Struct, kw_only=True, tag="request"):
    """One request as its client saw it."""

    number: int
    gateway: str
    ask: Ask
    sent_s: float
    status: int = 0
    """Of HTTP; 0 while there is no answer."""
    request_id: str = ""
    heard: list[Heard] = []
    ended_s: float = 0.0
    end: str = ""
    """``whole``, ``refused``, ``error``, ``cancelled``, ``broken`` (the connection), ``unreached`` (there was
    none) or ``silence`` (never ended)."""
    why: str = ""

    @property
    def tokens(self) -> list[str]:
        return [token for heard in self.heard for token in heard.tokens]

    @property
    def text(self) -> str:
        return "".join(heard.text for heard in self.heard)


class Fault(msgspec.Struct, kw_only=True, tag="fault"):
    """Something that was done to the cluster."""

    kind: str
    targets: list[str]
    began_s: float
    ended_s: float = 0.0
    whole_s: float | None = None
    """When the cluster served again; None if it did not in time."""
    detail: str = ""
    obstacles: list[str] = []
    """Why it did not serve before that."""
    injected: list[str] = []
    """Entries that the fault wrote, as "stream id"."""
    skipped: str = ""
    """Why it could not be done."""


class LifeOf(msgspec.Struct, kw_only=True, tag="life"):
    """A process from its start to its end."""

    member: str
    pid: int
    began_s: float
    ended_s: float | None = None
    status: int | None = None
    was_ours: bool = True
    """A fault ended it."""


class Entry(msgspec.Struct, kw_only=True, tag="entry"):
    """A write that Redis kept in its log."""

    order: int
    """Of the command; those of one transaction have consecutive ones and the same ``transaction``."""
    transaction: int
    life: int
    """Of Redis: a new one began where its log was read again, perhaps without its tail."""
    verb: str
    key: str
    entry_id: str = ""
    message: dict[str, object] = {}
    """Of an entry that can be decoded."""
    value: str = ""


class Sample(msgspec.Struct, kw_only=True, tag="sample"):
    """Metrics of one process at one time; empty where it did not answer."""

    at_s: float
    member: str
    metrics: dict[str, float] = {}


class Resources(msgspec.Struct, kw_only=True, tag="resources"):
    """What an idle cluster holds."""

    at_s: float
    when: str
    """``start`` or ``end``."""
    memory_bytes: dict[str, int] = {}
    descriptors: dict[str, int] = {}
    keys: list[str] = []
    redis_bytes: int = 0


class Leftover(msgspec.Struct, kw_only=True, tag="leftover"):
    """Something that still stands somewhere after the load has stopped and it had time to go."""

    at_s: float
    where: str
    what: str


class Secret(msgspec.Struct, kw_only=True, tag="secret"):
    """A place in which something was found that must stand nowhere."""

    place: str
    what: str


class Difference(msgspec.Struct, kw_only=True, tag="difference"):
    """A batch that was not what its service's inbox says (`checker.fold`)."""

    service: str
    committed: str
    what: str


Record = Difference | Request | Fault | LifeOf | Entry | Sample | Resources | Leftover | Secret


@dataclass
class History:
    """All records of a run."""

    undisturbed: dict[str, Request] = field(default_factory=dict)
    """By the key of its ask: what was answered before the first fault."""
    requests: list[Request] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    lives: list[LifeOf] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    resources: list[Resources] = field(default_factory=list)
    leftovers: list[Leftover] = field(default_factory=list)
    secrets: list[Secret] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    stopped_s: float = 0.0
    """When the load had stopped."""

    def save(self, folder: Path) -> None:
        """As JSON lines, a file a kind."""
        folder.mkdir(parents=True, exist_ok=True)
        kinds: dict[str, Iterable[Record]] = {
            "undisturbed": self.undisturbed.values(),
            "requests": self.requests,
            "faults": self.faults,
            "lives": self.lives,
            "entries": self.entries,
            "samples": self.samples,
            "resources": self.resources,
            "leftovers": self.leftovers,
            "secrets": self.secrets,
            "differences": self.differences,
        }
        for name, records in kinds.items():
            lines = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
            (folder / f"{name}.jsonl").write_bytes(lines)
