"""How many requests a gateway holds at once: from before the body is read until the last byte is out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from gateway.openai.errors import errors
from gateway.tenants.auth import Client
from gateway.tenants.shares import RESERVE, ShareRefusal, Shares
from shared.config.config import ClusterConfig
from shared.config.services.gateway import HELD_BYTES_PER_BODY_BYTE, HELD_BYTES_PER_CALL


class Held:
    """What one holder has of the room, from entering to leaving.

    A class, since a request takes twice and a generator would cost twice as much.
    """

    __slots__ = ("_slots", "client", "num_bytes", "num_slots")

    def __init__(self, slots: Slots, client: Client, num_slots: int, num_bytes: int) -> None:
        self._slots = slots
        self.client = client
        self.num_slots = num_slots
        self.num_bytes = num_bytes

    def __enter__(self) -> Held:
        self._slots.hold(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._slots.give_back(self)

    def shrink(self, num_bytes: int) -> None:
        """It turns out to need fewer bytes."""
        freed = self.num_bytes - num_bytes
        assert freed >= 0
        self.num_bytes = num_bytes
        self._slots.free_bytes(self.client.tenant, freed)


class Slots:
    """A bound on everything that grows with a request: waiting handlers by number, bodies and payloads by bytes.

    Both are shared by tenants (`Shares`); a key may have a bound of its own on the number.
    """

    def __init__(
        self,
        config: ClusterConfig,
        wait_s: Callable[[], float | None],
        clock: Callable[[], float],
        has_others: Callable[[], bool],
    ) -> None:
        """``wait_s`` predicts how long it takes until there is room, None where it cannot.

        ``has_others`` says whether the keys name more than one tenant.
        """
        options = config.gateway
        weights = {name: tenant.weight for name, tenant in config.tenants.items()}
        self._requests = Shares(options.max_inflight, int(RESERVE * options.max_inflight), weights)
        # a body of any size that is allowed finds room beside the reserve, or its tenant could never send it
        spare = options.max_inflight_bytes - HELD_BYTES_PER_BODY_BYTE * options.max_body_bytes - HELD_BYTES_PER_CALL
        reserve_bytes = min(int(RESERVE * options.max_inflight_bytes), spare)
        self._bytes = Shares(options.max_inflight_bytes, reserve_bytes, weights)
        self._of_keys = Counter[bytes]()
        self._wait_s = wait_s
        self._clock = clock
        self._has_others = has_others

    @property
    def num_taken(self) -> int:
        """Requests held now."""
        return self._requests.num_held

    @property
    def bytes_taken(self) -> int:
        """Of bodies and payloads held now."""
        return self._bytes.num_held

    def free_bytes(self, tenant: str, num_bytes: int) -> None:
        """A holder needs so many fewer."""
        self._bytes.give_back(tenant, num_bytes)

    def check_fits(self, client: Client, num_slots: int, param: str) -> None:
        """`ApiError` 400 for a call of more requests than its tenant can ever have here: it would be 429 for ever."""
        most = self._requests.most(client.tenant, has_others=self._has_others())
        if num_slots > most:
            raise errors.invalid(
                f"these are {num_slots} requests; at most {most} are taken at a time: send fewer", param
            )

    def take(self, client: Client, num_slots: int = 1, num_bytes: int = 0) -> Held:
        """Slots and bytes, to be held by entering what is returned.

        `ApiError` 429 there when there are too few, for all, for the tenant or for the key: no request waits here, the
        queue is behind, not before.
        """
        return Held(self, client, num_slots, num_bytes)

    def hold(self, held: Held) -> None:
        """As `take` says."""
        client, now = held.client, self._clock()
        self._check(client, held.num_slots, held.num_bytes)
        self._requests.take(client.tenant, held.num_slots, now)
        self._bytes.take(client.tenant, held.num_bytes, now)
        self._of_keys[client.key_id] += held.num_slots

    def give_back(self, held: Held) -> None:
        """All that is held."""
        client = held.client
        self._requests.give_back(client.tenant, held.num_slots)
        self._bytes.give_back(client.tenant, held.num_bytes)
        self._of_keys[client.key_id] -= held.num_slots
        if not self._of_keys[client.key_id]:
            del self._of_keys[client.key_id]

    def _check(self, client: Client, num_slots: int, num_bytes: int) -> None:
        limit = client.max_inflight
        if limit is not None and self._of_keys[client.key_id] + num_slots > limit:
            raise errors.too_many_of_key(limit, self._wait_s())
        for shares, num, full, unfair in (
            (self._requests, num_slots, errors.saturated, errors.saturated_share),
            (self._bytes, num_bytes, errors.saturated_bytes, errors.saturated_share_bytes),
        ):
            if num:
                self._check_one(shares, client.tenant, num, full, unfair)

    def _check_one(
        self,
        shares: Shares,
        tenant: str,
        num: int,
        full: Callable[[int, float | None], errors.ApiError],
        unfair: Callable[[int, int, float | None], errors.ApiError],
    ) -> None:
        now, has_others = self._clock(), self._has_others()
        refusal = shares.refusal(tenant, num, now, has_others=has_others)
        if refusal is ShareRefusal.FULL:
            raise full(shares.limit, self._wait_s())
        if refusal is ShareRefusal.SHARE:
            share = int(shares.share_of(tenant, now, has_others=has_others))
            raise unfair(share, shares.limit, self._wait_s())
