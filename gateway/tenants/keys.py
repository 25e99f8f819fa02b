"""The keys that hold now, and the calls that go on under each: a key that is revoked loses its answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gateway.inflight.calls.call import InflightCall
from gateway.openai.errors import errors
from gateway.tenants.auth import Client, KeyRing
from gateway.tenants.rates import Rates


class Keys:
    """One ring at a time. Without keys there is nothing to revoke: an open gateway is closed by its first ring."""

    def __init__(self, ring: KeyRing) -> None:
        self.ring = ring
        self.problem = ""
        """Why the file of the keys, as it is now, is not what holds; empty where it is."""
        self.rates = Rates()
        self._calls: dict[bytes, dict[InflightCall, Client]] = {}

    def authenticate(self, headers: Mapping[str, str]) -> Client:
        """As `KeyRing.authenticate`, by the ring that holds now."""
        return self.ring.authenticate(headers)

    @contextmanager
    def holding(self, client: Client, call: InflightCall) -> Iterator[None]:
        """While the call goes on: it ends with its key. `ApiError` 401 where that was revoked since the call came."""
        if not self.ring.knows(client):
            raise errors.key_revoked()
        calls = self._calls.setdefault(client.key_id, {})
        calls[call] = client
        try:
            yield
        finally:
            del calls[call]
            if not calls and self._calls.get(client.key_id) is calls:
                del self._calls[client.key_id]

    def replace(self, ring: KeyRing) -> int:
        """Other keys hold from now on; answers how many calls have ended with theirs."""
        self.ring = ring
        self.rates.keep(ring)
        revoked = [call for calls in self._calls.values() for call, client in calls.items() if not ring.knows(client)]
        for call in revoked:
            call.revoke()
        return len(revoked)

    def describe(self) -> dict[str, object]:
        """What operators see."""
        return {"num_keys": self.ring.num_keys, "problem": self.problem}
