"""Responses in the background, in Redis: what was asked for, which process follows it, and the log of what has come."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from gateway.inflight.kept_responses import MAX_COUNTED_OUT, PREFIXES
from gateway.kept.unavailable import telling_unavailable
from shared.bus import background_scripts as scripts
from shared.bus import streams
from shared.bus.system_writes import RunsScripts
from shared.config.config import ClusterConfig

MAX_IN_ALL = 1024
"""Responses in the background that have not ended, of the cluster."""
MAX_OF_TENANT = 256
MAX_UNFOLLOWED_S = 604_800
"""What no process follows is kept so long for a gateway that comes back: as long as a request may wait in the queue."""
MAX_REQUEST_BYTES = 1 << 19
"""Of what is kept of a request, with the conversation before it: half of what its answer is kept in."""
MAX_LOG_BYTES = 4 << 20
"""Of one response's events and tokens: some 100,000 tokens, far fewer where each comes with many logprobs."""
READ_BYTES = 1 << 18
"""Of a log, at a time."""
SIGN_S = 1.0
"""Between two signs of life; with `MISSED_LOOKS`, a process that was killed is missed within some six seconds."""
MAX_CLAIMS = 32
"""Responses whose follower has died, at a look."""

Confirm = Callable[[str, int], Awaitable[None]]
"""Wait for a key, which lives for so many seconds."""

_TTL_MS = MAX_UNFOLLOWED_S * 1000


class BackgroundRequest(Struct, frozen=True, omit_defaults=True):
    """A request as its client made it, and all that its answer rests on beside the models."""

    tenant: str
    key_id: str
    """Digest of its key, in hexadecimal; empty where the gateway is open."""
    body: bytes
    """JSON."""
    earlier: bytes
    """JSON: items that stand before its own."""
    seed: int
    arrived_s: float
    """Unix time."""
    blank: bytes
    """JSON: the answer before anything of it is known."""
    headers: dict[str, str] = {}
    """Those that say something about the promise, or the trace."""
    conversation: str = ""
    """The one that it is part of."""


class Standing(enum.Enum):
    """Of a response, to the process that follows it."""

    OK = "ok"
    ENDED = "ended"
    """It was cancelled or removed."""
    TAKEN = "taken"
    """Another process follows it."""
    LOST = "lost"
    """Redis has come back without it."""


class Claim(NamedTuple):
    """A response that this process follows now."""

    response_id: str
    life: int
    """How many processes have followed it before."""
    request: BackgroundRequest
    next: int
    """Sequence number of the next event."""
    log: bytes


class OpenResponse(NamedTuple):
    """A response that has not ended."""

    request: BackgroundRequest
    status: str
    next: int
    num_log_bytes: int


class Background:
    """For one process. All calls raise `QueueUnavailableError` where Redis does not answer."""

    def __init__(
        self,
        redis: RunsScripts,
        follower: str,
        keep_s: float,
        max_bytes: int,
        sign_s: float = SIGN_S,
        confirm: Confirm | None = None,
    ) -> None:
        """``follower``: the name of this life of this process, without blanks. ``confirm``: see `create`."""
        self.follower = follower
        self.sign_s = sign_s
        self._confirm = confirm
        self._limits = (int(keep_s * 1000), max_bytes, MAX_COUNTED_OUT)
        run = redis.register_script
        self._create, self._append, self._end = run(scripts.CREATE), run(scripts.APPEND), run(scripts.END)
        self._cancel, self._remove, self._find = run(scripts.CANCEL), run(scripts.REMOVE), run(scripts.FIND)
        self._read, self._sign, self._look = run(scripts.READ), run(scripts.SIGN), run(scripts.LOOK)
        self._strike, self._claim = run(scripts.STRIKE), run(scripts.CLAIM)

    # --- of one response ------------------------------------------------------------------------------------------

    async def create(self, claim: Claim, status: str = "queued", *, is_bounded: bool = True) -> str:
        """``ok``, or ``full`` or ``tenant_full`` where there are too many. `QueueFullError`.

        A new one is there where it survives a fail-over, as far as that can be waited for (`RedisQueue.confirm`).
        """
        response_id, request = claim.response_id, claim.request
        state = [request.tenant, msgspec.msgpack.encode(request), claim.life, status, claim.next, claim.log, _TTL_MS]
        limits = [MAX_IN_ALL, MAX_OF_TENANT] if is_bounded else [1 << 30, 1 << 30]
        with telling_unavailable():
            keys = [streams.BACKGROUND, *_keys(response_id)]
            outcome = _text(await self._create(keys=keys, args=[response_id, self.follower, *state, *limits]))
        if outcome == "ok" and is_bounded and self._confirm is not None:
            await self._confirm(streams.background(response_id), MAX_UNFOLLOWED_S)
        return outcome

    async def append(self, response_id: str, num_before: int, data: bytes, next_number: int) -> Standing | int:
        """More of the log; how many bytes it has, where these are not ``num_before``. `QueueFullError`."""
        with telling_unavailable():
            keys = [streams.BACKGROUND, *_keys(response_id)]
            args = [response_id, self.follower, num_before, data, next_number, _TTL_MS]
            return _standing(await self._append(keys=keys, args=args))

    async def end(self, response_id: str, num_before: int, data: bytes, kept: bytes) -> Standing | int:
        """The rest of the log, and the answer as it is ``kept``; as `append`. Done twice it is done once."""
        with telling_unavailable():
            keys = [streams.RESPONSES, streams.RESPONSES_BYTES, streams.BACKGROUND, *_keys(response_id)]
            args = [*PREFIXES, response_id, kept, *self._limits, self.follower, num_before, data]
            return _standing(await self._end(keys=keys, args=args))

    async def cancel(self, response_id: str, num_before: int, data: bytes, kept: bytes) -> Standing | int:
        """The same by any process that is asked, follower or not; `Standing.ENDED` where it has ended already."""
        with telling_unavailable():
            keys = [streams.RESPONSES, streams.RESPONSES_BYTES, streams.BACKGROUND, *_keys(response_id)]
            args = [*PREFIXES, response_id, kept, *self._limits, num_before, data]
            return _standing(await self._cancel(keys=keys, args=args))

    async def remove(self, response_id: str) -> bool:
        """Whether it had not ended; nothing is left of it then."""
        with telling_unavailable():
            return bool(await self._remove(keys=_keys(response_id), args=[]))

    async def find(self, tenant: str, response_id: str) -> OpenResponse | None:
        """None where this tenant has none that has not ended."""
        with telling_unavailable():
            whose, request, status, number, num_bytes = await self._find(keys=_keys(response_id), args=[])
        if whose is None or _text(whose) != tenant:
            return None
        return OpenResponse(_decoded(request), _text(status), int(number), num_bytes)

    async def read(self, response_id: str, place: int) -> tuple[bytes, bool]:
        """Up to `READ_BYTES` of its log from this byte on, and whether it goes on."""
        with telling_unavailable():
            data, is_open = await self._read(keys=_keys(response_id), args=[place, place + READ_BYTES - 1])
        return data, bool(is_open)

    # --- of processes ---------------------------------------------------------------------------------------------

    async def sign(self, followed: Sequence[str]) -> list[Standing]:
        """Show that this process lives; how each of those stands that it follows."""
        with telling_unavailable():
            keys, own = [streams.FOLLOWERS, streams.BACKGROUND], [self.follower, *_RECORD_PREFIXES, _TTL_MS]
            return [Standing(_text(one)) for one in await self._sign(keys=keys, args=[*own, *followed])]

    async def look(self, known: Collection[str]) -> tuple[Mapping[str, str], list[str]]:
        """What each process has shown last, and responses that no process follows; ``known``: those of this process."""
        with telling_unavailable():
            keys = [streams.FOLLOWERS, streams.BACKGROUND]
            signs, orphans = await self._look(keys=keys, args=[MAX_CLAIMS, self.follower, *known])
        told = [_text(one) for one in signs]
        return dict(zip(told[::2], told[1::2], strict=True)), [_text(one) for one in orphans]

    async def strike(self, follower: str, sign: str = "") -> None:
        """It follows no more; not if it has shown more than ``sign`` since."""
        with telling_unavailable():
            await self._strike(keys=[streams.FOLLOWERS], args=[follower, sign])

    async def claim(self, response_id: str) -> Claim | None:
        """Follow it; None where another one does, or it is gone."""
        with telling_unavailable():
            keys = [streams.FOLLOWERS, streams.BACKGROUND, *_keys(response_id)]
            found = await self._claim(keys=keys, args=[response_id, self.follower])
        if found is None:
            return None
        life, _, request, _, number, log = found
        return Claim(response_id, life, _decoded(request), int(number), log)


def background(
    redis: RunsScripts, config: ClusterConfig, follower: str, confirm: Confirm | None = None
) -> Background | None:
    """As the configuration says; None where nothing is kept."""
    options = config.gateway
    if options.keep_responses_s is None:
        return None
    return Background(redis, follower, options.keep_responses_s, options.kept_responses_bytes, confirm=confirm)


def _keys(response_id: str) -> list[str]:
    return [streams.background(response_id), streams.response_log(response_id)]


def _standing(answer: bytes | int) -> Standing | int:
    return answer if isinstance(answer, int) else Standing(_text(answer))


def _text(data: Any) -> str:
    return data.decode() if isinstance(data, bytes) else str(data)


def _decoded(data: bytes) -> BackgroundRequest:
    return msgspec.msgpack.decode(data, type=BackgroundRequest)


_RECORD_PREFIXES = (streams.background(""), streams.response_log(""))
