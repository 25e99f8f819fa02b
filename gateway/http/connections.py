"""The connections at the clients' port: what each is doing, how long it may, and which go where there are too many.

Decides, and touches no socket: `gateway.http.clients_port` tells it what happens, and does what it says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

# Opened, or a byte of the next request sent: clients send a header in one piece, and the slowest line has carried it by
# then. A connection without a header holds no slot, so nothing else bounds how long it stays.
HEADER_TIMEOUT_S = 10.0
# Between two requests. Longer than load balancers keep connections to what is behind them (60 s is common), so that
# these close one, and never while a request is under way.
IDLE_TIMEOUT_S = 75.0
# An answer: a client that takes nothing of it for this long has left, whatever its socket says.
WRITE_TIMEOUT_S = 60.0
# One that was refused, or sent no HTTP: a moment to read the answer before the connection is torn down.
LINGER_S = 1.0
# Of those without a header, the oldest give way to newcomers, but not within the time that a busy loop may need to read
# what they have sent.
HEADER_GRACE_S = 2.0
MAX_REFUSED = 64  # that are told why; beyond, connections are closed without a word


class ConnectionState(Enum):
    """What a connection is doing."""

    HEADER = "header"
    """Its client has opened it, or begun a request, and not sent the whole header."""
    REQUEST = "request"
    """A request is under way, until the last byte of its answer is out."""
    IDLE = "idle"
    """Between two requests."""
    REFUSED = "refused"
    """It came when there were too many; it only reads the answer."""


class Reason(Enum):
    """Why a connection was closed."""

    CLOSED = "closed"
    """By its client, or behind an answer that said so."""
    NO_HEADER = "no_header"
    NO_REQUEST = "no_request"
    CROWDED = "crowded"
    """It was idle, and a newcomer needed its place."""
    REFUSED = "refused"
    BAD_HTTP = "bad_http"
    UNREAD = "unread"
    """Its client did not read an answer."""
    PIPELINED = "pipelined"
    """Its client sent on and on behind a request that was not answered yet."""


@dataclass(frozen=True)
class TimeOuts:
    """How long a connection may be in a state, or its client may not read, in seconds."""

    header_s: float = HEADER_TIMEOUT_S
    idle_s: float = IDLE_TIMEOUT_S
    write_s: float = WRITE_TIMEOUT_S
    linger_s: float = LINGER_S
    grace_s: float = HEADER_GRACE_S


C = TypeVar("C", bound=Hashable)


class Connections(Generic[C]):
    """All connections by what they do; those that have done it longest come first."""

    def __init__(self, limit: int, timeouts: TimeOuts = TimeOuts()) -> None:
        """``limit``: connections at a time, without those that are being refused."""
        self.limit = limit
        self.timeouts = timeouts
        self.num_closed: Counter[Reason] = Counter()
        self._since_s: dict[ConnectionState, dict[C, float]] = {state: {} for state in ConnectionState}
        self._state: dict[C, ConnectionState] = {}

    @property
    def is_empty(self) -> bool:
        """No client is connected."""
        return not self._state

    def num_in(self, state: ConnectionState) -> int:
        """Connections that are doing this."""
        return len(self._since_s[state])

    def state_of(self, connection: C) -> ConnectionState | None:
        """What it does; None if it is not there any more."""
        return self._state.get(connection)

    @property
    def is_full(self) -> bool:
        """A newcomer needs another one's place."""
        return len(self._state) - self.num_in(ConnectionState.REFUSED) >= self.limit

    @property
    def can_refuse(self) -> bool:
        """One more can be told that there is no place."""
        return self.num_in(ConnectionState.REFUSED) < MAX_REFUSED

    def in_the_way(self, now: float) -> C | None:
        """The one that gives way to a newcomer: the oldest that is idle, else that has sent no header; or None."""
        for connection in self._since_s[ConnectionState.IDLE]:
            return connection
        for connection, since_s in self._since_s[ConnectionState.HEADER].items():
            return connection if since_s + self.timeouts.grace_s <= now else None
        return None

    def enter(self, connection: C, state: ConnectionState, now: float) -> None:
        """It does this from now on; one that did so already is as old as it was."""
        before = self._state.get(connection)
        if before is state:
            return
        if before is not None:
            del self._since_s[before][connection]
        self._state[connection] = state
        self._since_s[state][connection] = now

    def leave(self, connection: C, reason: Reason) -> None:
        """It is closed, and counted once."""
        state = self._state.pop(connection, None)
        if state is not None:
            del self._since_s[state][connection]
            self.num_closed[reason] += 1

    def overdue(self, now: float) -> list[tuple[C, Reason]]:
        """Those whose time is over, with the reason."""
        limits = (
            (ConnectionState.HEADER, self.timeouts.header_s, Reason.NO_HEADER),
            (ConnectionState.IDLE, self.timeouts.idle_s, Reason.NO_REQUEST),
            (ConnectionState.REFUSED, self.timeouts.linger_s, Reason.REFUSED),
        )
        found = []
        for state, limit_s, reason in limits:
            for connection, since_s in self._since_s[state].items():
                if since_s + limit_s > now:
                    break  # the others came later
                found.append((connection, reason))
        return found
